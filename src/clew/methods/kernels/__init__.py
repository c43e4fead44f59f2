"""Tuning of compute kernels on the CPU, and advice from measurements (KernelPro, arXiv 2606.26453)."""
