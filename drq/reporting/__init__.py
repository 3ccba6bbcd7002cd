"""What tables, plots and reports are made of: expressions, typesetting, drawing, the verdict, the page and its sections."""
