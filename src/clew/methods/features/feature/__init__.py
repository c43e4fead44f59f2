"""One feature of two checkpoints: what the store keeps of it, and what it is called."""
