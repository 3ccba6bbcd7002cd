"""Search for the best rule over views: models answer at many views once, and every rule is computed from their answers.

``record`` asks models, ``rules`` turns answers into labels, ``choose`` compares rules on images that no report touches.
"""
