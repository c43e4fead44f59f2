"""python -m papers.E172_cliffs"""

from papers.E172_cliffs.run import parse

raise SystemExit(parse())
