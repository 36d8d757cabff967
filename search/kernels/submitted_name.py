"""The names of submitted sources' templates, which are no part of a kernel's identity."""

from __future__ import annotations

import re

PREFIX = "submitted_"  # before digits of the submission's digest
NAME_DIGITS = 12
_NAME = re.compile(f"{PREFIX}[0-9a-f]{{{NAME_DIGITS}}}")


def is_submitted(template: str) -> bool:
    """Whether a template of this name is a submitted source (search/loop/submitted.py)."""
    return _NAME.fullmatch(template) is not None
