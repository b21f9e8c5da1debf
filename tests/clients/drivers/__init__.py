"""One program per client: it drives the client as a user of that package would.

A driver runs in the environment of its client, so it imports nothing of ours but ``protocol``.
"""
