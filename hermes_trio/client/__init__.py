"""The terminal client. Internal."""
