"""Training on several devices: one process (a rank) for each, the weights cut among them (FSDP2 of torch)."""
