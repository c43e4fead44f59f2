"""Tree rollouts (E162, arXiv 2605.05262): where to branch, how trees grow, which trees get the tokens kept back."""
