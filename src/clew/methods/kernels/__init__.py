"""Tuning of compute kernels, with advice from measurements.

Question: which build of this kernel is fastest, and why?
For: who writes kernels, or lets an agent write them.
Paper: E177 (KernelPro), arXiv 2606.26453. Command: ``clew kernels tune | explain``. Page: docs/kernels.md.
One-line rule it must beat: the compiler's highest optimisation level.
"""
