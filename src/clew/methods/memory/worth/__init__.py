"""What items of a memory are worth: runs forked with an item and without it, and what can be told without any run."""
