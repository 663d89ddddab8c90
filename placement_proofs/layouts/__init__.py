"""Layouts: which degrees, recomputation and kernels fit a device, how fast they are, and why.

After *Efficient Parallelization Layouts for Large-Scale Distributed Model Training* (arXiv
2311.05610). Memory and traffic are the closed forms of derived plans, by
:mod:`placement_proofs.cost`.
"""
