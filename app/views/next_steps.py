"""The commands that show more about a rejected candidate."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from greenfast.search.kernels.submitted_name import is_submitted
from greenfast.search.text import written
from greenfast.search.verdict import Stage, VerdictName

if TYPE_CHECKING:
    from greenfast.app.views.designs import Design
    from greenfast.app.views.schemas import TrialOut
    from greenfast.db.rows import SearchRow, TrialRow

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


def check_of_trial(search: SearchRow, trial: TrialRow | TrialOut, design: Design) -> str:
    """The `greenfast check` of a stored trial; empty if it shows nothing."""
    if not can_check(trial.verdict, trial.stage) or is_submitted(design.template):
        return ""
    changed = {name: value for name, value, _ in design.changes}
    workload = search.workloads[0]
    return check_command(
        search.kernel, design.template, changed, workload, search.target, design.preset
    )


def can_check(verdict: str | None, stage: str | None) -> bool:
    """Whether `check` may show why the candidate was rejected."""
    return verdict == VerdictName.REJECTED and stage in CHECKED
