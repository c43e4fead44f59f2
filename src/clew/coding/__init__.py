"""Code as agents find it: repositories, their past changes, and tasks made of them."""
