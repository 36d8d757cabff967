"""Domain values as versioned JSON, `{"schema": 1, ...}`, and back without a difference.

A dataclass is an object with its class's name as `type`; fields are read back by their annotations.
Fields that an old record lacks take their defaults, so records outlive additions. Any other unknown
content is refused. JSON has no NaN and no infinities: stored, each is an object that no text can be
mistaken for, `{"float": "nan"}`; shown, it is one of the strings `NaN`, `Infinity` and `-Infinity`.
"""

from __future__ import annotations

import dataclasses
import json
import math
import operator
import types
import typing
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from functools import cache, partial
from itertools import chain
from typing import Any, TypeVar

from greenfast.search.errors import Fault
from greenfast.search.json_values import number_name
from greenfast.search.loop.plan import SearchPlan
from greenfast.search.space.candidate import Candidate, OriginKind
from greenfast.search.verdict import (
    CheckEvidence,
    CorrectnessEvidence,
    Evidence,
    Failed,
    GateResult,
    LineCost,
    Outcome,
    Passed,
    PerformanceEvidence,
    Reason,
    Rejected,
    Skipped,
    Unavailable,
    Verdict,
)

SCHEMA = 1
DETAILS_SCHEMA = 2  # checks by field; in schema 1 each was an object
COLUMNS = "columns"
STORED_RESULT = "GateResult"
REQUIRED_RESULT_KEYS = {"type", "gate", "outcome", "sentence"}
RESULT_KEYS = {*REQUIRED_RESULT_KEYS, "evidence", "reason"}
T = TypeVar("T")
M = TypeVar("M", bound=Enum)
_AS_IT_IS, _FLOAT, _TUPLE = frozenset((str, int, bool, type(None))), {float}, {tuple}
_RESULTS = (Passed, Failed, Unavailable, Skipped)
_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def plan_json(plan: SearchPlan) -> str:
    return _document({"plan": encode(plan)})


def plan_of(document: str) -> SearchPlan:
    plan: SearchPlan = _read(SearchPlan, _content(document, "plan"))
    return plan


def candidate_json(candidate: Candidate) -> str:
    return _document({"candidate": encode(candidate)})


def candidate_of(document: str) -> Candidate:
    candidate: Candidate = _read(Candidate, _content(document, "candidate"))
    if candidate.origin.kind is OriginKind.MUTATED and not candidate.origin.parents:
        # Before lineage was recorded, repaired candidates were stored as mutated, without parents.
        return replace(candidate, origin=replace(candidate.origin, kind=OriginKind.REPAIRED))
    return candidate


def sampler_json(sampler: Mapping[str, Any]) -> str:
    return _document({"sampler": encode(sampler)})


def sampler_of(document: str) -> dict[str, Any]:
    sampler: dict[str, Any] = _plain(_content(document, "sampler"))
    return sampler


def pairs_json(name: str, pairs: tuple[tuple[Any, ...], ...]) -> str:
    """Named scalars, such as an environment or the parameters that a candidate changed."""
    return _document({name: encode(pairs)})


def pairs_of(name: str, document: str) -> tuple[tuple[Any, ...], ...]:
    return tuple(tuple(_plain(value) for value in row) for row in _content(document, name))


def value_json(name: str, value: Any) -> str:
    """A dataclass of the domain under `name`: a confirmation, a peer, a scope."""
    return _document({name: encode(value)})


def value_of(name: str, cls: type[T], document: str) -> T:
    value: T = _read(cls, _content(document, name))
    return value


def verdict_json(verdict: Verdict) -> tuple[str, bytes]:
    """The verdict, and its details deflated.

    Checks and counters by line take 90 KB a trial, and only one page needs them.
    """
    details = Details(
        {
            result.gate: result.evidence.checks
            for result in verdict.gates
            if isinstance(result.evidence, CorrectnessEvidence)
        },
        {
            result.gate: tuple(timing.lines for timing in result.evidence.timings)
            for result in verdict.gates
            if isinstance(result.evidence, PerformanceEvidence)
        },
        verdict.log if isinstance(verdict, Rejected) else "",
    )
    document = _document(
        {
            "checks": {gate: _columns(checks) for gate, checks in details.checks.items()},
            "lines": encode(details.lines),
            "log": details.log,
        },
        schema=DETAILS_SCHEMA,
    )
    short = _with_details(verdict, Details(dict.fromkeys(details.checks, ()), {}, ""))
    return _document({"verdict": encode(short)}), zlib.compress(document.encode(), level=1)


def verdict_of(document: str, details: bytes | None = None) -> Verdict:
    """The verdict. Without `details` it lacks single checks, lines and a rejection's log."""
    verdict: Verdict = _read(Verdict, _content(document, "verdict"))
    if details is None:
        return verdict
    try:
        inflated = zlib.decompress(details).decode()
    except (zlib.error, UnicodeDecodeError) as error:
        raise _unreadable("its details are damaged") from error
    content = partial(_content, inflated, newest=DETAILS_SCHEMA)
    checks = {
        gate: _read(tuple[CheckEvidence, ...], _rows(checks))
        for gate, checks in content("checks").items()
    }
    lines = {
        gate: _read(tuple[tuple[LineCost, ...], ...], rows)
        for gate, rows in content("lines", {}).items()
    }
    return _with_details(verdict, Details(checks, lines, content("log")))


def _columns(checks: Sequence[CheckEvidence]) -> dict[str, Any]:
    """Values by field: half the text of an object a check, and half the time to write it.

    Text that all checks share stands once.
    """
    names, read = _stored_fields(CheckEvidence)  # type: ignore[misc]
    columns = zip(*map(read, checks), strict=True) if checks else [()] * len(names)
    return {
        "type": COLUMNS,
        "count": len(checks),
        **{name: _column(values) for name, values in zip(names, columns, strict=True)},
    }


def _column(values: tuple[Any, ...]) -> Any:
    if values and type(values[0]) is str and values.count(values[0]) == len(values):
        return values[0]
    return _encode_all(values)


def _rows(checks: Any) -> Any:
    """What `_columns` took apart, as objects; earlier records hold these."""
    if not (isinstance(checks, dict) and checks.get("type") == COLUMNS):
        return checks
    columns = {name: values for name, values in checks.items() if name not in ("type", "count")}
    try:
        whole = [
            [values] * checks["count"] if isinstance(values, str) else values
            for values in columns.values()
        ]
        return [
            {"type": CheckEvidence.__name__, **dict(zip(columns, row, strict=True))}
            for row in zip(*whole, strict=True)
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise _unreadable("its checks are damaged") from error


@dataclasses.dataclass(frozen=True)
class Details:
    """The parts that a verdict's short form leaves out, by gate."""

    checks: Mapping[str, tuple[CheckEvidence, ...]]
    lines: Mapping[str, tuple[tuple[LineCost, ...], ...]]  # one entry per timing
    log: str


def _with_details(verdict: Verdict, details: Details) -> Verdict:
    gates = tuple(_with_evidence(result, details) for result in verdict.gates)
    if isinstance(verdict, Rejected):
        return replace(verdict, gates=gates, log=details.log)
    return replace(verdict, gates=gates)


def _with_evidence(result: GateResult, details: Details) -> GateResult:
    evidence = result.evidence
    if isinstance(evidence, CorrectnessEvidence) and result.gate in details.checks:
        return _with_new_evidence(result, replace(evidence, checks=details.checks[result.gate]))
    if isinstance(evidence, PerformanceEvidence):
        lines = details.lines.get(result.gate) or ((),) * len(evidence.timings)
        timings = tuple(
            replace(timing, lines=costs)
            for timing, costs in zip(evidence.timings, lines, strict=True)
        )
        return _with_new_evidence(result, replace(evidence, timings=timings))
    return result


def _with_new_evidence(result: GateResult, evidence: Evidence) -> GateResult:
    return result if isinstance(result, Skipped) else replace(result, evidence=evidence)


def gates_plain(verdict: Verdict) -> dict[str, dict[str, Any]]:
    """Gate results by name, for people.

    Without types, with the evidence's fields flat, and with names for NaN and infinities.
    """
    plain: dict[str, dict[str, Any]] = {}
    for gate in verdict.gates:
        evidence = _without_types(encode(gate.evidence)) or {}
        if isinstance(gate.evidence, CorrectnessEvidence):
            evidence["max_abs_error"] = _without_types(encode(gate.evidence.max_abs_error))
        for timing in evidence.get("timings", ()):
            timing.update({name: dict(timing[name]) for name in ("detail", "limits", "mix")})
        plain[gate.gate] = {
            "outcome": gate.outcome.value,
            "sentence": storable(gate.sentence),
            "reason": gate.reason.value if isinstance(gate, Failed) else None,
            **evidence,
        }
    return plain


def storable(text: str) -> str:
    """Text that every database and reader accepts: no NUL, no half of a surrogate pair."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def encode(value: Any) -> Any:
    """`value` as JSON data. NumPy scalars become plain numbers; Fault for what has no JSON form."""
    kind: Any = type(value)
    if kind in _AS_IT_IS or (kind is float and math.isfinite(value)):
        return value
    if (fields := _stored_fields(kind)) is not None:
        names, read = fields
        return {"type": kind.__name__, **dict(zip(names, _encode_all(read(value)), strict=True))}
    if isinstance(value, (tuple, list)):
        return _encode_all(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": str(float(value))}
    if isinstance(value, _RESULTS):
        return _encode_result(value)
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise Fault(
                "a record holds a mapping whose keys are not text", code="record_unwritable"
            )
        return {key: encode(item) for key, item in value.items()}
    if hasattr(value, "item"):
        return encode(value.item())
    if isinstance(value, (str, int)):
        return encode((str if isinstance(value, str) else int)(value))
    raise Fault(
        f"a record holds a {type(value).__name__}, which has no JSON form", code="record_unwritable"
    )


def _encode_all(values: Sequence[Any]) -> list[Any]:
    """Without a call for most: a trial has thousands of values, many in columns of one type."""
    kinds = set(map(type, values))
    if kinds <= _AS_IT_IS or (kinds == _FLOAT and all(map(math.isfinite, values))):
        return list(values)
    if kinds == _TUPLE and set(map(type, chain.from_iterable(values))) <= _AS_IT_IS:
        return list(map(list, values))
    return [
        value
        if (kind := type(value)) in _AS_IT_IS or (kind is float and math.isfinite(value))
        else encode(value)
        for value in values
    ]


@cache
def _stored_fields(kind: type) -> tuple[tuple[str, ...], Callable[[Any], Sequence[Any]]] | None:
    """The names of a dataclass's fields, and what reads them all; None for another type, and for
    results of gates."""
    if not dataclasses.is_dataclass(kind) or issubclass(kind, _RESULTS):
        return None
    names = _names(kind)
    if len(names) > 1:
        return names, operator.attrgetter(*names)
    return names, lambda value: [getattr(value, name) for name in names]


def _encode_result(result: GateResult) -> dict[str, Any]:
    """Encode with the name and keys in use before results were tagged by class."""
    return {
        "type": STORED_RESULT,
        "gate": encode(result.gate),
        "outcome": result.outcome.value,
        "sentence": encode(result.sentence),
        "evidence": encode(result.evidence),
        "reason": result.reason.value if isinstance(result, Failed) else None,
    }


def _decode_result(value: Any) -> GateResult:
    if not isinstance(value, dict) or value.get("type") != STORED_RESULT:
        raise _unreadable(f"a {STORED_RESULT} was expected")
    other = (value.keys() - RESULT_KEYS) | (REQUIRED_RESULT_KEYS - value.keys())
    if other:
        raise _unreadable(f"{STORED_RESULT} has other fields: {', '.join(sorted(other))}")
    gate, sentence, reason = value["gate"], value["sentence"], value.get("reason")
    evidence = decoder(Evidence | None)(value.get("evidence"))
    outcome = _member(Outcome, value["outcome"])
    if (outcome is Outcome.FAILED) != (reason is not None):
        raise _unreadable("a failed gate has a reason, and only a failed one")
    match outcome:
        case Outcome.PASSED:
            return Passed(gate, sentence, evidence)
        case Outcome.FAILED:
            return Failed(gate, sentence, _member(Reason, reason), evidence)
        case Outcome.UNAVAILABLE:
            return Unavailable(gate, sentence, evidence)
    return Skipped(gate, sentence)


@cache
def decoder(hint: Any) -> Callable[[Any], Any]:
    """A function that turns JSON data back into the annotated type."""
    if hint == GateResult:
        return _decode_result
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _union(arguments)
    if origin is tuple:
        return _tuple(arguments)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _dataclass(hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return lambda value: _member(hint, value)
    return _plain


def _dataclass(cls: type) -> Callable[[Any], Any]:
    hints = typing.get_type_hints(cls)
    fields = {name: decoder(hints[name]) for name in _names(cls)}
    required = {
        field.name
        for field in dataclasses.fields(cls)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }

    def decode(value: Any) -> Any:
        if not isinstance(value, dict) or value.get("type") != cls.__name__:
            raise _unreadable(f"a {cls.__name__} was expected")
        given = value.keys() - {"type"}
        if given - fields.keys() or required - given:
            unknown = sorted((given - fields.keys()) | (required - given))
            raise _unreadable(f"{cls.__name__} has other fields: {', '.join(unknown)}")
        return cls(**{name: fields[name](value[name]) for name in given})

    return decode


def _union(members: tuple[Any, ...]) -> Callable[[Any], Any]:
    classes: list[Any] = [member for member in members if dataclasses.is_dataclass(member)]
    tagged = {cls.__name__: decoder(cls) for cls in classes}
    others = [
        decoder(member) for member in members if member is not type(None) and member not in classes
    ]

    def decode(value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, dict) and "type" in value:
            if value["type"] not in tagged:
                raise _unreadable(f"its type {value['type']!r} is not known")
            return tagged[value["type"]](value)
        return others[0](value) if len(others) == 1 else _plain(value)

    return decode


def _tuple(members: tuple[Any, ...]) -> Callable[[Any], Any]:
    if len(members) == 2 and members[1] is Ellipsis:
        decode_item = decoder(members[0])
        return lambda value: tuple([decode_item(item) for item in value])
    decoders = [decoder(member) for member in members]
    return lambda value: tuple([decode(item) for decode, item in zip(decoders, value, strict=True)])


def _member(cls: type[M], value: Any) -> M:
    try:
        return cls(value)
    except ValueError:
        raise _unreadable(f"{value!r} is not a {cls.__name__}") from None


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"float"} and value["float"] in _NON_FINITE:
            return _NON_FINITE[value["float"]]
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _without_types(value: Any) -> Any:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, dict):
        if value.keys() == {"float"} and value["float"] in _NON_FINITE:
            return number_name(_NON_FINITE[value["float"]])
        return {key: _without_types(item) for key, item in value.items() if key != "type"}
    return [_without_types(item) for item in value] if isinstance(value, list) else value


@cache
def _names(cls: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(cls))


def _document(content: dict[str, Any], schema: int = SCHEMA) -> str:
    # ASCII only: not every database accepts the NULs and broken surrogates of a compiler's log.
    return _ENCODER.encode({"schema": schema, **content})


def _content(document: str, name: str, default: Any = None, newest: int = SCHEMA) -> Any:
    """The document's content under `name`; `default` is for records of earlier versions."""
    try:
        content = json.loads(document)
    except ValueError as error:
        raise _unreadable("it is not JSON") from error
    if not isinstance(content, dict) or not isinstance(content.get("schema"), int):
        raise _unreadable(f"it holds no {name}")
    if default is not None and name not in content:
        return default
    if name not in content:
        raise _unreadable(f"it holds no {name}")
    if content["schema"] > newest:
        raise Fault(
            f"a stored {name} has schema {content['schema']}, "
            f"and this greenfast reads up to {newest}",
            code="record_newer",
            mend="use the greenfast that wrote it, or a newer one",
        )
    return content[name]


def _read(hint: Any, value: Any) -> Any:
    try:
        return decoder(hint)(value)
    except (TypeError, ValueError, AttributeError) as error:
        raise _unreadable(str(error)) from error


def _unreadable(why: str) -> Fault:
    return Fault(
        f"a stored record cannot be read: {why}",
        code="record_unreadable",
        mend="use the greenfast that wrote it, or a newer one",
    )
