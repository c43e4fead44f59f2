"""Models over HTTP, and other people's agents recorded through it."""
