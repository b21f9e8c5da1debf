"""``hermes-trio doctor``: find out whether a server with the given settings can work."""
