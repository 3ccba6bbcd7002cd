"""Writers of pages: every table in the docs is made from records, and so are whole pages."""
