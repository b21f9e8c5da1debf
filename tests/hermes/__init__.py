"""The agent with the real package behind it.

Run by the nox session ``hermes``, in an environment of its own.
"""
