"""python -m papers.E163_backtrack"""

from papers.E163_backtrack.run import parse

raise SystemExit(parse())
