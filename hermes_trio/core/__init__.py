"""The pure core: no await, clock, thread, randomness or I/O.

Events of an agent are reduced to changes (``turn``), which dialects render for the wire and stores
keep as records. Internal: the public names are those of ``hermes_trio``.
"""
