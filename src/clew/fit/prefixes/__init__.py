"""Rows that share beginnings, laid out as a trie whose tokens pass the model once."""
