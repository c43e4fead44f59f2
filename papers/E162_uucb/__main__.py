"""python -m papers.E162_uucb"""

from papers.E162_uucb.run import parse

raise SystemExit(parse())
