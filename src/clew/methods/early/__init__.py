"""Whether the outcome of a run is settled before the model thinks: probes, resampled and swapped thinking.

Question: does the thinking decide anything, and how much of it can be saved?
For: who pays for reasoning tokens, or studies them.
Paper: E171, arXiv 2606.25013. Command: ``clew audit early``. Page: docs/early.md.
One-line rule it must beat: the commonest outcome of the task; a bag of the prompt's words.
"""
