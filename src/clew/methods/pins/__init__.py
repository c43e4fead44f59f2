"""Whether rules survive the compaction of a long conversation, and pins that keep them.

Question: does my agent still know its rules after its history was summarised?
For: who runs agents that outlive their context. Pins themselves are ``clew.harness.context.pins``.
Paper: E164, arXiv 2606.22528. Command: ``clew audit decay``. Page: docs/compaction.md.
One-line rule it must beat: the rules repeated at the end of each summary.
"""
