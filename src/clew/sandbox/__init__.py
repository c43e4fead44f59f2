"""Running code that nobody vouches for."""
