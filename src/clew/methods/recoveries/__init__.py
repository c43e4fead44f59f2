"""Which states after a mistake, and which recoveries from one, ever receive a training signal.

Question: will training on these runs teach the model to recover from its mistakes?
For: who trains on demonstrations or on filtered runs.
Paper: E163, arXiv 2606.22938. Command: ``clew audit coverage``. Page: docs/coverage.md.
One-line rule it must beat: the number of runs that made a mistake and succeeded.
"""

from clew.methods.recoveries.coverage import Coverage, Trail, coverage, trails

__all__ = ["Coverage", "Trail", "coverage", "trails"]
