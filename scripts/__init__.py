"""Maintenance scripts, run as ``python -m scripts.NAME`` from the root of the repository."""
