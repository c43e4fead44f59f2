"""What a store keeps of agents' memories: an append-only list of entries, and what they add up to."""
