"""Rows of data as tasks: a file and a reward make a taskset. ``clew.dataset`` and ``--data`` come here."""
