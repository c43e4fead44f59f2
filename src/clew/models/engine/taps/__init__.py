"""Writes into hidden states, by request and position, for both forwards; and the blocks of any decoder by name."""
