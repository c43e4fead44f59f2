"""Why an agent did something: its run is rewound, what it was told is changed, and it is sampled again.

Question: what in its input caused this behaviour?
For: who audits a run that went wrong.
Paper: E174, arXiv 2606.26071. Command: ``clew audit why``. Page: docs/why.md.
One-line rule it must beat: ask the model why it did so.
"""

from clew.methods.why.question import why

__all__ = ["why"]
