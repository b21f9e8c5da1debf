"""Channels: messengers through which people talk to an agent, each chat in a session of its own."""
