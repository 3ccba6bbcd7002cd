"""Hold the benchmark scripts behind figures in the docs. Each writes a record into results/."""
