"""The built-in agents, and the registry that finds an agent by name or import path. Internal."""
