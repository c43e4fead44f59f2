"""``--nproc``: how a verb that trains starts a process for each device, and what each of them does."""
