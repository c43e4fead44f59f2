"""The methods, one package for each. Its first screen says which question it answers, and for whom.

Each ``__init__`` also names the paper, the command, the page and the rule of one line that a user would try otherwise.
The core imports none of them; they share the statistics of ``compare``.
"""
