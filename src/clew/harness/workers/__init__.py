"""Workers: processes that drive runs for a Runner, here or on a cluster, while one process writes the store."""
