"""A search of `clew evolve` as figures and tables: what its log says, followed event by event."""
