"""Published coding agents: what each draws anew at every start, and what it declares of its requests."""
