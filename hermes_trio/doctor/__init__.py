"""The checks of ``hermes-trio doctor``. Internal."""
