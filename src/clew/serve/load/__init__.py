"""Load tests: clients that ask a server, and a simulation of what a server would do."""
