"""Running on from a place in a recorded run: the change, the forks, continuations of which only outcomes are kept."""
