"""python -m papers.E179_dspark"""

from papers.E179_dspark.run import parse

raise SystemExit(parse())
