"""The emulator's checks on a public suite whose files carry labels.

    python -m bench.correctness.suites hirace CHECKOUT OUT.json [WORD ...]
    python -m bench.correctness.suites scor CHECKOUT OUT.json [WORD ...]

CHECKOUT is a copy of HiRace's artifact (github.com/JohnJacobsonIII/HiRace-Artifact-SC24) or of
ScoR (github.com/csl-iisc/ScoR). With WORDs, only the files whose name contains one of them. A file
is right when the checks find the kinds of bugs that its label names, and nothing else. Exits 1
unless all are, or differ from their label for a reason that this package gives.
"""

from bench.correctness.suites.command import main

__all__ = ["main"]
