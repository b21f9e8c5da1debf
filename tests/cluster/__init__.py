"""Several servers on one PostgreSQL database, seen from outside: only HTTP, signals and SQL."""
