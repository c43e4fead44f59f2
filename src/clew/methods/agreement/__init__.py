"""How far raters agree: people with each other, and a judge with people.

Question: may this judge stand in for the people whose labels I have?
For: who evaluates runs with a model or a function as the judge.
Command: ``clew audit judge``, ``clew audit methods``. Page: docs/judge.md, docs/agreement.md.
One-line rule it must beat: the share of equal verdicts, and a judge that goes by the length of the reply.
"""
