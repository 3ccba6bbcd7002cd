"""What answers people in place of a model: a defence that reads pictures."""
