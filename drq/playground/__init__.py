"""Show DRQ in a browser (``drq play``): on points of a plane, on images, and on the records of a run.

Only the files that end in ``_tab``, and ``page.py``, use Gradio; all others compute or draw what the tabs show.
"""
