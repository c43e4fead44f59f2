"""From stored runs to items of a memory: reflection, the screen, and what it all cost."""
