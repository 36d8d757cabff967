"""The commands that show more about a rejected candidate."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from greenfast.search.text import written
from greenfast.search.verdict import Stage, VerdictName

# The stages whose rejections `check` can explain: it names the lines of wrong accesses.
CHECKED = (Stage.CORRECTNESS, Stage.SAFETY)


def check_command(
    kernel: str,
    template: str,
    parameters: Mapping[str, Any],
    workload: str,
    target: str,
    preset: str = "",
) -> str:
    """The `greenfast check` of a candidate; `parameters`: those that differ from the preset."""
    words = ["greenfast", "check", kernel, "--template", template]
    words += ["--preset", preset] if preset else []
    for name, value in parameters.items():
        words += ["--set", f"{name}={written(value)}"]
    words += ["--workload", workload]
    words += ["--target", target] if target.startswith("emulator:") else []
    return shlex.join(words)


def can_check(verdict: str | None, stage: str | None) -> bool:
    """Whether `check` may show why the candidate was rejected."""
    return verdict == VerdictName.REJECTED and stage in CHECKED
