"""Searches of open spaces under judges that can be fooled: an archive with evidence, and engines over it."""
