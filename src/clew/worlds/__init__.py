"""Bundled worlds, adapters to foreign worlds, and the contract that every world passes."""
