"""The process: Hypercorn's Trio worker with guards, its configuration, signals and shutdown."""
