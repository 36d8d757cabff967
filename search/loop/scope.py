"""The scope of a finding.

It covers operation and sources, workloads' values, compile-time values, device model and toolchain.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from greenfast.search.digest import digest
from greenfast.search.kernels.workloads import Items
from greenfast.search.loop.plan import SearchPlan


@dataclass(frozen=True)
class Scope:
    """Times of one scope may be compared.

    The kernel's digest covers its operation, reference and templates. Workloads are named by their
    values. Their names count only in a scope of an earlier version, which holds no values: its
    kernel digest covers them.
    """

    kernel: str
    kernel_digest: str
    workloads: tuple[str, ...]  # sorted by name: a geometric mean has no order
    values: Items  # compile-time dims and options (D, dtype, mask)
    device: str
    toolchain: str
    mode: str = "auto"  # the cache mode: hot and cold are never compared
    # Dims and options of each workload, sorted independently of `workloads`.
    shapes: tuple[Items, ...] = ()
    # Each shape's weight, in the order of `shapes`; empty: all the same.
    weights: tuple[float, ...] = ()

    DIGEST_WHEN_SET = frozenset({"shapes", "weights"})

    @property
    def digest(self) -> str:
        return digest(replace(self, workloads=()) if self.shapes else self)


def scope_of(plan: SearchPlan, environment: Mapping[str, str]) -> Scope:
    """The scope of a search; of `environment` the entries `device` and `toolchain` count."""
    # Equal weights have no order, and scopes of earlier versions hold none.
    order = sorted(range(len(plan.shapes)), key=lambda at: repr(plan.shapes[at]))
    return Scope(
        plan.kernel,
        plan.kernel_digest,
        tuple(sorted(plan.workloads)),
        plan.compiled,
        environment.get("device", ""),
        environment.get("toolchain", ""),
        plan.mode,
        tuple(plan.shapes[at] for at in order),
        tuple(plan.weights[at] / math.fsum(plan.weights) for at in order) if plan.weights else (),
    )
