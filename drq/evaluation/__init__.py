"""From a spec to records: what is evaluated, how it is cut into shards, the only loop over data, and how rows are kept."""
