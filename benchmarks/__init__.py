"""The benchmark: ``nox -s bench``, or ``python -m benchmarks --help``."""
