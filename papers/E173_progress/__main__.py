"""python -m papers.E173_progress"""

from papers.E173_progress.run import parse

raise SystemExit(parse())
