"""The `greenfast` command, REST, the dashboard, and `wiring`, which puts the parts together."""

import os

# Many threads work on small matrices at once. A BLAS that starts threads of its own for each
# matrix only makes them wait. Set here and not in greenfast itself: a program that only calls
# kernels keeps its own setting.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
