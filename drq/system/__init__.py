"""The machine below: files, downloads, threads, and how far long work is."""
