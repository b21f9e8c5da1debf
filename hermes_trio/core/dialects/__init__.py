"""Dialects: pure renderers from changes to the wire, one module per API."""
