"""Models of worlds from stored runs: what is learnt from, the rows, the reward of an answer, and its measure."""
