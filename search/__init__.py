"""The domain: kernels, candidates, gates, strategies and the search loop. Knows no database and no web."""

import os

# Many threads work on small matrices at a time here: a BLAS that starts threads of its own for each only makes them wait.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
