"""What ``drq play`` shows in a browser: DRQ on points of a plane, on images, and the records of a run.

What is computed or drawn stands in files that know nothing of Gradio; the files that end in ``_tab`` arrange it on a page.
"""
