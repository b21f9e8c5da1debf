"""Code that the tests of several packages share."""
