"""What people look at: the web viewer, the terminal tree of a run, and the one-page report of a training."""
