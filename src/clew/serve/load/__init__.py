"""Load tests: clients that ask, and a simulation of what a server would do."""
