"""Benchmarks and studies of greenfast; README.md lists the scripts, their questions and results."""

import os

# Scripts share the cores out by themselves. NumPy reads this when it is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
