"""The domain: kernels, candidates, gates, strategies and the search loop; no database, no web."""

import os

# Many threads work on small matrices at once. A BLAS that starts threads of its own for each
# matrix only makes them wait.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
