"""Where a bug report points, in which file and line, and how sure that is.

Question: where do I look first for this bug?
For: a coding agent, or who directs one.
Paper: E169 (SHERLOC), arXiv 2606.24820. Command: ``clew diagnose``. Page: docs/diagnose.md.
One-line rule it must beat: grep for the identifiers of the report; the files of its traceback.
"""
