"""Defaults that the command line's help shows. This file imports nothing, to keep help fast."""

from __future__ import annotations

RETUNED = 4  # points tried again for an ablation's arm that matters
