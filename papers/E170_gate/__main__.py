"""python -m papers.E170_gate"""

from papers.E170_gate.run import parse

raise SystemExit(parse())
