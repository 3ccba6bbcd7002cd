"""Services of the machine: files, downloads, threads, code by name, and progress of long work."""
