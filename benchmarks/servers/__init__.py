"""The other contenders.

They run in their own environments, so they import nothing of hermes_trio.
"""
