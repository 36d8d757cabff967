"""Reading dispatch.json: strictly, since a table decides which kernel a program runs.

A table is refused unless its digest fits, its names and sizes are those of the kernel, and it
agrees with itself: the rules pick for every tuned workload the kernel that the table states.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from greenfast.search.dispatch.rules import Condition, Rule
from greenfast.search.dispatch.table import (
    FORMAT,
    LIBRARY,
    SCHEMA,
    DispatchGroup,
    DispatchTable,
    LeftOut,
    PeerTime,
    Regret,
    ServedWorkload,
    table_digest,
)
from greenfast.search.errors import GreenfastError, UsageError
from greenfast.search.kernels.expressions import require_names
from greenfast.search.kernels.workloads import LARGEST_DIM
from greenfast.search.text import shortened, visible

TIME_KINDS = ("measured", "modelled", "replayed")
TABLE_KEYS = {
    "format",
    "schema",
    "kernel",
    "within_percent",
    "time_kind",
    "method",
    "groups",
    "digest",
}
GROUP_KEYS = {
    "compiled",
    "region",
    "rules",
    "outside",
    "method",
    "bound",
    "workloads",
    "regret",
}
WORKLOAD_KEYS = {"name", "dims", "weight", "use", "times_us", "best_us", "ratio", "peers"}


def read_table(value: Any, compiled_of: Mapping[str, Mapping[str, Any]]) -> DispatchTable:
    """The table of dispatch.json; UsageError `bad_dispatch` with what would be correct.

    `compiled_of`: the compile-time values of each kernel of the bundle, by id.
    """
    table = _keys(value, TABLE_KEYS, "the dispatch table")
    if table["format"] != FORMAT or table["schema"] != SCHEMA:
        raise _bad(
            f"its format is {_shown(table['format'])} {_shown(table['schema'])}; this version "
            f"reads {FORMAT} {SCHEMA}"
        )
    if (digest := table_digest_of(table)) != table["digest"]:
        raise _bad(f"its digest is {_shown(table['digest'])}, and its content has {digest[:16]}...")
    if table["time_kind"] not in TIME_KINDS:
        raise _bad(f"time_kind is {_shown(table['time_kind'])}, not one of {', '.join(TIME_KINDS)}")
    groups = tuple(
        _group(each, f"group {number}", compiled_of)
        for number, each in enumerate(_list(table["groups"], "groups"), 1)
    )
    if not groups:
        raise _bad("it has no groups; a table serves at least one workload")
    for number, group in enumerate(groups):
        if any(dict(group.compiled) == dict(other.compiled) for other in groups[:number]):
            raise _bad(f"two groups have the same compiled values {_values(group.compiled)}")
    return DispatchTable(
        _text(table["kernel"], "kernel"),
        _number(table["within_percent"], "within_percent", least=0.0),
        table["time_kind"],
        groups,
    )


def table_digest_of(table: Mapping[str, Any]) -> str:
    """The digest of the content; UsageError `bad_dispatch` where it holds no plain JSON."""
    try:
        return table_digest(table)
    except (TypeError, ValueError, RecursionError) as error:
        raise _bad(f"it is not plain JSON: {error}") from None


def _group(value: Any, where: str, compiled_of: Mapping[str, Mapping[str, Any]]) -> DispatchGroup:
    group = _keys(value, GROUP_KEYS, where)
    compiled = _table(group["compiled"], f"{where}, compiled")
    fitting = {name for name, values in compiled_of.items() if dict(values) == compiled}
    region = _region(group["region"], f"{where}, region")
    names = {name for name, _, _ in region}
    rules = tuple(
        _rule(each, f"{where}, rule {number}", names, fitting)
        for number, each in enumerate(_list(group["rules"], f"{where}, rules"), 1)
    )
    if not rules or rules[-1].when or not all(rule.when for rule in rules[:-1]):
        raise _bad(f"{where}: the last rule, and no other, has no conditions")
    read = DispatchGroup(
        tuple(compiled.items()),
        region,
        rules,
        _kernel(group["outside"], f"{where}, outside", fitting),
        tuple(
            _workload(each, f"{where}, workload {number}", fitting)
            for number, each in enumerate(_list(group["workloads"], f"{where}, workloads"), 1)
        ),
        _regret(group["regret"], f"{where}, regret"),
        _text(group["method"], f"{where}, method"),
        _number(group["bound"], f"{where}, bound", least=1.0),
    )
    _require_agreement(read, where)
    return read


def _require_agreement(group: DispatchGroup, where: str) -> None:
    """The rules have to pick what each tuned workload states, inside the region."""
    if not group.workloads:
        raise _bad(f"{where} has no workloads; the region is that of the tuned ones")
    names = [name for name, _, _ in group.region]
    for workload in group.workloads:
        dims = dict(workload.dims)
        if missing := [name for name in names if not isinstance(dims.get(name), int)]:
            raise _bad(f"{where}: workload {_shown(workload.name)} lacks {missing[0]}")
        for name, fixed in group.compiled:
            if name in dims and dims[name] != fixed:
                raise _bad(f"{where}: workload {_shown(workload.name)} has {name}={dims[name]}")
        sizes = {name: int(dims[name]) for name in names}
        try:
            picked = group.pick(sizes)
        except GreenfastError as error:
            raise _bad(f"{where}: {error}") from None
        if not group.inside(sizes):
            raise _bad(f"{where}: workload {_shown(workload.name)} lies outside of the region")
        if picked != workload.use:
            raise _bad(
                f"{where}: the rules pick {picked} for workload {_shown(workload.name)}, which "
                f"states {workload.use}"
            )
    for at, (name, low, high) in enumerate(group.region):
        measured = [int(dict(workload.dims)[name]) for workload in group.workloads]
        if (min(measured), max(measured)) != (low, high):
            raise _bad(
                f"{where}: the region of {name} is {group.region[at][1:]}, and the workloads "
                f"span {min(measured)} to {max(measured)}"
            )


def _region(value: Any, where: str) -> tuple[tuple[str, int, int], ...]:
    region: list[tuple[str, int, int]] = []
    for name, limits in _table(value, where).items():
        pair: list[Any] = limits if isinstance(limits, list) and len(limits) == 2 else [None] * 2
        if not all(map(_is_size, pair)) or pair[0] > pair[1]:
            raise _bad(f"{where}: {name} is {_shown(limits)}; it is [smallest, largest]")
        region.append((name, pair[0], pair[1]))
    return tuple(region)


def _rule(value: Any, where: str, names: Collection[str], kernels: Collection[str]) -> Rule:
    rule = _keys(value, {"when", "use"}, where)
    conditions = tuple(
        _condition(condition, where, names) for condition in _list(rule["when"], where)
    )
    return Rule(conditions, _kernel(rule["use"], where, kernels, library=True))


def _condition(value: Any, where: str, names: Collection[str]) -> Condition:
    condition = _keys(value, {"value", "above", "at_most"}, where)
    limits = (condition["above"], condition["at_most"])
    if limits == (None, None) or not all(
        limit is None or (isinstance(limit, int) and not isinstance(limit, bool))
        for limit in limits
    ):
        raise _bad(f"{where}: the limits are {_shown(limits)}; they are whole numbers or null")
    read = Condition(_text(condition["value"], where), *limits)
    try:
        require_names(read.computed, set(names))
    except GreenfastError as error:
        raise _bad(f"{where}: {error}") from None
    return read


def _workload(value: Any, where: str, kernels: Collection[str]) -> ServedWorkload:
    workload = _keys(value, WORKLOAD_KEYS, where)
    times = tuple(
        (
            _kernel(name, f"{where}, times_us", kernels, library=True),
            _number(time, f"{where}, times_us", least=0.0),
        )
        for name, time in _table(workload["times_us"], where).items()
    )
    use = _kernel(workload["use"], where, kernels, library=True)
    if use not in dict(times):
        raise _bad(f"{where}: use is {use}, which has no time among times_us")
    best = _number(workload["best_us"], f"{where}, best_us", least=0.0)
    if best > min(time for _, time in times):
        raise _bad(f"{where}: best_us is {best:g}, above a time of the set")
    ratio = workload["ratio"]
    return ServedWorkload(
        _text(workload["name"], where),
        tuple(_table(workload["dims"], f"{where}, dims").items()),
        _number(workload["weight"], f"{where}, weight", least=0.0),
        use,
        times,
        best,
        None if ratio is None else _number(ratio, f"{where}, ratio", least=0.0),
        tuple(_peer(peer, where) for peer in _list(workload["peers"], where)),
    )


def _peer(value: Any, where: str) -> PeerTime:
    peer = _keys(value, {"name", "ratio", "ratio_low", "ratio_high"}, f"{where}, peers")
    numbers = (_number(peer[key], where, least=0.0) for key in ("ratio", "ratio_low", "ratio_high"))
    return PeerTime(_text(peer["name"], where), *numbers)


def _regret(value: Any, where: str) -> Regret | None:
    if value is None:
        return None
    regret = _keys(value, {"leave_one_out"}, where)["leave_one_out"]
    regret = _keys(regret, {"geomean", "worst", "rows"}, where)
    rows = []
    for each in _list(regret["rows"], where):
        row = _keys(each, {"workload", "use", "ratio", "inside"}, where)
        rows.append(
            LeftOut(
                _text(row["workload"], where),
                str(row["use"]),
                _number(row["ratio"], where, least=0.0),
                row["inside"] is True,
            )
        )
    geomean, worst = (_number(regret[key], where, least=0.0) for key in ("geomean", "worst"))
    return Regret(geomean, worst, tuple(rows))


def _kernel(value: Any, where: str, known: Iterable[str], *, library: bool = False) -> str:
    names = [*sorted(known), *([LIBRARY] if library else [])]
    if value not in names:
        raise _bad(
            f"{where}: {_shown(value)} is not a kernel of the bundle for these compiled values; "
            f"those are {', '.join(names) or 'none'}"
        )
    return str(value)


def _keys(value: Any, keys: set[str], where: str) -> dict[str, Any]:
    table = _table(value, where)
    if odd := sorted(set(table) ^ keys):
        raise _bad(f"{where} has or lacks {_shown(odd[0])}; its keys are {', '.join(sorted(keys))}")
    return table


def _table(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _bad(f"{where} is not a JSON object")
    return value


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise _bad(f"{where} is not a JSON list")
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise _bad(f"{where}: {_shown(value)} is not text")
    return value


def _number(value: Any, where: str, *, least: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise _bad(f"{where}: {_shown(value)} is not a number")
    if value < least or (least == 0.0 and value == 0.0 and "percent" not in where):
        raise _bad(f"{where}: {value:g} is too small")
    return float(value)


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_DIM


def _values(items: Iterable[tuple[str, Any]]) -> str:
    return ", ".join(f"{name}={value}" for name, value in items)


def _shown(value: object) -> str:
    return shortened(visible(repr(value)), 60)


def _bad(sentence: str) -> UsageError:
    return UsageError(
        f"dispatch.json: {sentence}",
        code="bad_dispatch",
        mend="use the bundle as `greenfast tune` wrote it",
    )
