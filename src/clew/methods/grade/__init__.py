"""Grades for each step of a run from two checkpoints: beta log(policy / reference) as an implicit process reward.

Question: which steps of this run helped, where only the outcome was rewarded?
For: who has trained a model by RL and kept its reference.
Paper: E173, arXiv 2606.26080. Command: ``clew audit grade``; as an estimator, ``graded``. Page: docs/grade.md.
One-line rule it must beat: the return of the run, given to each of its steps.
"""
