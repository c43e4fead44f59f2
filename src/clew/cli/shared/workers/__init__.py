"""Options of lines whose runs may be driven by workers."""
