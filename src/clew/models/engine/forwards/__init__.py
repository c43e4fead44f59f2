"""Forward passes that the engine computes with: one for each kind of decoder, with the same methods."""
