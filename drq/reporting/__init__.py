"""Parts of a report: the verdict, the page, its tables and its figures."""
