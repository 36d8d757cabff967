"""The `greenfast` command, REST, the dashboard, and `wiring`, which puts the parts together."""

import gc
import os

# Many threads work on small matrices at once. A BLAS that starts threads of its own for each
# matrix only makes them wait. Set here and not in greenfast itself: a program that only calls
# kernels keeps its own setting.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Objects between two collections, likewise. Importing greenfast makes hundreds of thousands that
# stay; Python's 700 would look through them again and again, for a tenth of a command's time.
gc.set_threshold(50_000)
