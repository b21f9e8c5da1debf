"""The web layer: a Quart application, one blueprint per API, behind one ASGI middleware."""
