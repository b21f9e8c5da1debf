"""What every store on an SQL database has in common: its statements, its group commit, and its methods.

The statements are written once, in the SQL that SQLite and PostgreSQL share, with parameters in the
style of ``sqlite3``. An engine provides a :class:`~hermes_trio.stores.sql.database.Database`.
"""
