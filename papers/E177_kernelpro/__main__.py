"""python -m papers.E177_kernelpro"""

from papers.E177_kernelpro.run import parse

raise SystemExit(parse())
