"""Rows packed without padding, as a trie whose shared tokens pass the model once."""
