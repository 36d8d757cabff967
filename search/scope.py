"""Where a finding holds: kernel, workloads, compile-time values, device model and toolchain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from search.digest import digest
from search.plan import SearchPlan
from search.spec import Items


@dataclass(frozen=True)
class Scope:
    """Times of one scope may be compared. The kernel's digest covers its templates, reference and workloads."""

    kernel: str
    kernel_digest: str
    workloads: tuple[str, ...]           # in the order of their names: a geometric mean has no order
    values: Items                        # compile-time dims and options (D, dtype, mask)
    device: str
    toolchain: str
    mode: str = "auto"                   # of timing: hot and cold are never compared

    @property
    def digest(self) -> str:
        return digest(self)


def scope_of(plan: SearchPlan, environment: Mapping[str, str]) -> Scope:
    """The scope of a search that ran in `environment`, of which the entries `device` and `toolchain` count."""
    return Scope(plan.kernel, plan.kernel_digest, tuple(sorted(plan.workloads)), plan.compiled,
                 environment.get("device", ""), environment.get("toolchain", ""), plan.mode)
