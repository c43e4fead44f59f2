"""What a memory of runs is worth: lessons learnt from runs, plans turned into tools, items left out one at a time.

Question: which items of the memory earn their place, and which plans should be code?
For: who runs an agent that remembers. The memory itself is ``clew.harness.memory``.
Paper: E168 (Metis), arXiv 2606.24151. Command: ``clew memory learn | craft | audit``. Page: docs/memory.md.
One-line rule it must beat: the raw trajectory of a similar run, put into the prompt.
"""
