"""The store in tables of an SQL database: what SQLite and PostgreSQL share, over ``database.Database``."""
