"""Stores: the interface (``base``), the factory for store URLs, and one module or package per engine."""
