"""hermes_trio: an OpenAI-compatible API server for tool-using agents.

The layout rule, held by ``tests/test_layering.py``: imports point one way.
``core`` and ``schema`` are pure (no await, clock, thread, randomness or I/O). ``agent``, ``stores`` and ``runs``
are thin Trio shells around them. ``web`` speaks HTTP through Quart-Trio, ``server`` owns Hypercorn and the
signals, and ``cli`` sits on top.
"""

__version__ = "0.1.0"
