"""Names of what a reply's seconds were spent on, for both sides of a GPU's pipes."""

from __future__ import annotations

UNASKED = "unasked"  # the child had no request before this one
BESIDE = "look beside"  # by another process than the one that owns the GPU
