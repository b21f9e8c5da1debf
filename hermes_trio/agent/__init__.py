"""The interface of agents, and what runs them.

Internal: agent authors import from ``hermes_trio``.
"""
