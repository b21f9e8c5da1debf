"""A model in a local file: a child process serves it, and the tool loop of ``upstream`` calls that.

``program`` is what the child runs, ``supervisor`` starts, stops and restarts it, and ``provider``
connects the tool loop to it.
"""
