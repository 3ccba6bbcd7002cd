"""From a spec to records: what is evaluated, how it is cut into shards, and how their rows are kept."""
