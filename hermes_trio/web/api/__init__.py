"""One module per API, each with its blueprint."""
