"""The dispatch table: which kernel serves which shape, as dispatch.json of a bundle holds it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from greenfast.search.dispatch.rules import Rule, pick
from greenfast.search.kernels.workloads import Items

FORMAT, SCHEMA = "greenfast-dispatch", 1
LIBRARY = "library"  # another library's kernel


@dataclass(frozen=True)
class PeerTime:
    """Another library's time beside the winner of the search, on one workload."""

    name: str
    ratio: float  # the winner's time / the peer's
    ratio_low: float
    ratio_high: float


@dataclass(frozen=True)
class ServedWorkload:
    """A tuned workload, the kernel that serves it, and what every kernel of the set takes."""

    name: str
    dims: Items
    weight: float
    use: str
    times_us: tuple[tuple[str, float], ...]
    best_us: float  # of all correct candidates, also those outside of the set
    ratio: float | None  # the kernel's time / the baseline's
    peers: tuple[PeerTime, ...] = ()


@dataclass(frozen=True)
class LeftOut:
    """A workload served by a table that was built without it."""

    workload: str
    use: str  # empty: a kernel that the whole set does not hold
    ratio: float  # time / the best time
    inside: bool  # of the region of the others


@dataclass(frozen=True)
class Regret:
    """The expected loss on shapes that were not measured: each workload was left out once."""

    geomean: float
    worst: float
    rows: tuple[LeftOut, ...]


@dataclass(frozen=True)
class DispatchGroup:
    """The workloads that share their compile-time values, and their rules."""

    compiled: Items
    region: tuple[tuple[str, int, int], ...]  # run-time dim, smallest, largest measured
    rules: tuple[Rule, ...]
    outside: str
    workloads: tuple[ServedWorkload, ...]
    regret: Regret | None  # None: with a single workload nothing can be left out
    method: str = "exact"
    bound: float = 1.0

    def sizes_of(self, rule: Rule) -> str:
        """The sizes for which a rule holds, in words."""
        rest = "all tuned sizes" if len(self.rules) == 1 else "otherwise"
        return " and ".join(map(str, rule.when)) or rest

    def inside(self, sizes: Mapping[str, int]) -> bool:
        return all(low <= sizes[name] <= high for name, low, high in self.region)

    def pick(self, sizes: Mapping[str, int]) -> str:
        """The kernel for these run-time dims."""
        return pick(self.rules, sizes) if self.inside(sizes) else self.outside

    def renamed(self, ids: Mapping[str, str]) -> DispatchGroup:
        """The group with other names for its kernels, and without times of kernels not in `ids`."""

        ids = {**ids, LIBRARY: LIBRARY}

        def name(old: str) -> str:
            return ids.get(old, old)

        rows = self.regret.rows if self.regret is not None else ()
        left_out = tuple(replace(row, use=ids.get(row.use, "")) for row in rows)
        return replace(
            self,
            rules=tuple(replace(rule, use=name(rule.use)) for rule in self.rules),
            outside=name(self.outside),
            workloads=tuple(
                replace(
                    workload,
                    use=name(workload.use),
                    times_us=tuple(
                        (name(old), time) for old, time in workload.times_us if old in ids
                    ),
                )
                for workload in self.workloads
            ),
            regret=replace(self.regret, rows=left_out) if self.regret is not None else None,
        )

    @property
    def kernels(self) -> tuple[str, ...]:
        used = [*(rule.use for rule in self.rules), self.outside]
        return tuple(dict.fromkeys(name for name in used if name != LIBRARY))


@dataclass(frozen=True)
class DispatchTable:
    kernel: str
    within_percent: float
    time_kind: str  # measured | modelled | replayed
    groups: tuple[DispatchGroup, ...] = field(default=())

    def group(self, compiled: Mapping[str, Any]) -> DispatchGroup | None:
        """The group of these compile-time values; None: the table does not serve them."""
        return next((group for group in self.groups if dict(group.compiled) == compiled), None)


def table_json(table: DispatchTable) -> dict[str, Any]:
    """The table as JSON data, with its digest."""
    methods = {group.method for group in table.groups}
    value = {
        "format": FORMAT,
        "schema": SCHEMA,
        "kernel": table.kernel,
        "within_percent": table.within_percent,
        "time_kind": table.time_kind,
        "method": "greedy" if "greedy" in methods else "exact",
        "groups": [_group_json(group) for group in table.groups],
    }
    return {**value, "digest": table_digest(value)}


def table_digest(value: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical JSON of everything but the digest."""
    without = {key: each for key, each in value.items() if key != "digest"}
    text = json.dumps(
        without, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )
    return hashlib.sha256(text.encode()).hexdigest()


def _group_json(group: DispatchGroup) -> dict[str, Any]:
    return {
        "compiled": dict(group.compiled),
        "region": {name: [low, high] for name, low, high in group.region},
        "rules": [
            {
                "when": [
                    {
                        "value": condition.value,
                        "above": condition.above,
                        "at_most": condition.at_most,
                    }
                    for condition in rule.when
                ],
                "use": rule.use,
            }
            for rule in group.rules
        ],
        "outside": group.outside,
        "method": group.method,
        "bound": group.bound,
        "workloads": [_workload_json(workload) for workload in group.workloads],
        "regret": None if group.regret is None else {"leave_one_out": _regret_json(group.regret)},
    }


def _workload_json(workload: ServedWorkload) -> dict[str, Any]:
    return {
        "name": workload.name,
        "dims": dict(workload.dims),
        "weight": workload.weight,
        "use": workload.use,
        "times_us": dict(workload.times_us),
        "best_us": workload.best_us,
        "ratio": workload.ratio,
        "peers": [vars(peer) for peer in workload.peers],
    }


def _regret_json(regret: Regret) -> dict[str, Any]:
    rows = [vars(row) for row in regret.rows]
    return {"geomean": regret.geomean, "worst": regret.worst, "rows": rows}
