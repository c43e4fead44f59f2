"""python -m papers.E174_forensics"""

from papers.E174_forensics.run import parse

raise SystemExit(parse())
