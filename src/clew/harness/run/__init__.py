"""One run, from its record to its end: what an agent holds, what is recorded, followed, performed and judged."""
