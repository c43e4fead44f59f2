"""What verbs share that start programs which Clew did not write."""
