"""The built-in tools of the upstream agent, and the rules by which they need approval. Internal."""
