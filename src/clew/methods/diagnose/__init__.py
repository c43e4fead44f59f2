"""Where a bug report points, and how sure that is (SHERLOC, arXiv 2606.24820)."""
