"""The same method, sooner: searches of many samples on a fixed number of rows, and models compiled once."""
