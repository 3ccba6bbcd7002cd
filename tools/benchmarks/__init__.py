"""What is measured apart from experiments: scripts behind figures in the docs. Each writes a record into results/."""
