"""What a GPU does for a candidate. Candidates with equal work have equal outputs and times."""

from __future__ import annotations

from dataclasses import dataclass

from greenfast.search.digest import digest
from greenfast.search.gates.base import Subject
from greenfast.search.kernels.spec import TemplateSpec
from greenfast.search.space.launching import launch_values
from greenfast.search.space.space import Resolved


@dataclass(frozen=True)
class Work:
    """Equal for candidates for which a GPU does the same."""

    machine_code: str  # a digest
    launches: str  # a digest of what else the runs depend on


def work_of(subject: Subject) -> Work | None:
    """The work of a compiled candidate; None where its machine code is not known."""
    code = subject.machine_code.machine_code
    return Work(code, launches_of(subject.template, subject.point)) if code else None


def launches_of(template: TemplateSpec, point: Resolved) -> str:
    """Launches, arguments and workspaces of a point, and the tiles that its checks follow."""
    tiles = tuple(sorted(point.tiles.items()))
    return digest((template.name, launch_values(template, point.values), tiles))
