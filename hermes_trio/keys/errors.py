"""What is wrong with keys."""

from hermes_trio.core.errors import ConfigurationError


class KeysError(ConfigurationError):
    """There is no usable key. The text is one line, without any key in it."""
