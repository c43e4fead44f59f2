"""Foreign worlds as worlds of Clew."""
