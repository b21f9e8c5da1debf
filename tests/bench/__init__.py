"""The benchmark: ``nox -s bench``, or ``python -m tests.bench --help``."""
