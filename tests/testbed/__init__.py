"""What the tests share: small models, made-up records and files, stand-ins for what is not there."""
