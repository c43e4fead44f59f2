"""The store of a team, in a PostgreSQL server."""
