"""python -m papers.E164_governance"""

from papers.E164_governance.run import parse

raise SystemExit(parse())
