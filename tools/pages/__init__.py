"""Write the tables in the docs, and some whole pages, from records."""
