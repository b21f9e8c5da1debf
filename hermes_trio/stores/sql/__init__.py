"""The common part of stores on SQL databases: statements, group commit, and the store's methods.

The statements are written once, in the SQL that SQLite and PostgreSQL share, with parameters in the
style of ``sqlite3``. An engine provides a :class:`~hermes_trio.stores.sql.database.Database`.
"""
