"""python -m papers.E169_sherloc"""

from papers.E169_sherloc.run import parse

raise SystemExit(parse())
