"""The file: JSON lines in gzip, readable with `zcat`. First the heading, then a line a row, then one that closes it.

A row's values stand in the order that the heading names (`row_fields`, `ptxas_fields`, `check_fields`), so that a file
explains itself and stays small. Times are microseconds with DIGITS significant digits.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from greenfast.search.devices.facts import Device, device, device_names
from greenfast.search.errors import UsageError
from greenfast.search.kernels.spec import Workload
from greenfast.search.recordings.contents import (
    COLUMNS,
    Columns,
    Heading,
    Protocol,
    RecordedTemplate,
    Recording,
    Row,
    Times,
)
from greenfast.search.text import shortened
from greenfast.search.toolchain.cache import write_atomically
from greenfast.search.verdict import CheckEvidence, PtxasEvidence

FORMAT, VERSION = "greenfast recording", 1
SUFFIX = ".recording.jsonl.gz"
DIGITS = 5
LARGEST_BYTES = 256 * 2**20  # inflated
PTXAS, CHECK = COLUMNS.ptxas, COLUMNS.check
ROW = (
    "number",
    "template",
    "values",
    "source_digest",
    "stage",
    "reason",
    "sentence",
    "ptxas",
    "outputs_checked",
    "worst",
    "times",
    "run",
)
TIMES = ("samples", "baseline_samples", "floor_us", "note", "health")


def rounded(value: float) -> float:
    """To DIGITS significant digits: what a file holds, and what verdicts are computed from."""
    return float(f"{value:.{DIGITS}g}")


def write(path: Path, recording: Recording) -> None:
    """Whole or not at all; the same contents give the same bytes."""
    lines = [
        heading_json(recording.heading),
        *map(row_json, recording.rows),
        _dumps({"end": True, "rows": len(recording.rows)}),
    ]
    write_atomically(
        path, gzip.compress(("\n".join(lines) + "\n").encode(), compresslevel=9, mtime=0)
    )
    path.chmod(0o644)  # what is written atomically is its owner's alone


def read(path: Path) -> Recording:
    """UsageError in one sentence for a file that is no recording, damaged, or of a version that is not known."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"the recording {path.name} cannot be read: {error.strerror}",
            code="recording_unreadable",
        ) from error
    text = _inflated(path.name, data)
    first, _, rest = text.partition("\n")
    heading = heading_of(path.name, first)
    try:
        lines = rest.splitlines()
        end = json.loads(lines[-1])
        if end.get("end") is not True or end["rows"] != len(lines) - 1:
            raise ValueError("its last line does not close it")
        rows = tuple(row_of(line, heading.columns) for line in lines[:-1])
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise _damaged(path.name, str(error)) from error
    return Recording(heading, rows, hashlib.sha256(data).hexdigest())


def read_heading(path: Path) -> Heading:
    """The first line only: what listings show of a recording."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            first = file.readline(LARGEST_BYTES)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise _damaged(path.name, str(error)) from error
    return heading_of(path.name, first)


def heading_json(heading: Heading) -> str:
    known = asdict(heading)
    del known["columns"]
    return _dumps(
        {
            "format": FORMAT,
            "version": VERSION,
            **known,
            "row_fields": ROW,
            "times_fields": TIMES,
            "ptxas_fields": PTXAS,
            "check_fields": CHECK,
        }
    )


def row_json(row: Row) -> str:
    ptxas = None if row.ptxas is None else [getattr(row.ptxas, name) for name in PTXAS]
    worst = None if row.worst is None else [getattr(row.worst, name) for name in CHECK]
    times = [
        [
            list(map(rounded, timing.samples)),
            list(map(rounded, timing.baseline_samples)),
            timing.floor_us,
            timing.note,
            dict(timing.health),
        ]
        for timing in row.times
    ]
    return _dumps(
        [
            row.number,
            row.template,
            row.values,
            row.source_digest,
            row.stage,
            row.reason,
            row.sentence,
            ptxas,
            row.outputs_checked,
            worst,
            times,
            row.run,
        ]
    )


def row_of(line: str, columns: Columns = COLUMNS) -> Row:
    """ValueError and its kin for a line that is no row: the last one of a journal may be half written."""
    (
        number,
        template,
        values,
        source_digest,
        stage,
        reason,
        sentence,
        ptxas,
        checked,
        worst,
        times,
        run,
    ) = json.loads(line)
    return Row(
        number,
        template,
        tuple(values),
        source_digest,
        stage,
        reason,
        sentence,
        None if ptxas is None else PtxasEvidence(**dict(zip(columns.ptxas, ptxas, strict=True))),
        checked,
        None if worst is None else _check(dict(zip(columns.check, worst, strict=True))),
        tuple(_times(timing) for timing in times),
        run,
    )


def _check(given: dict[str, Any]) -> CheckEvidence:
    return CheckEvidence(**{**given, "worst_index": tuple(given["worst_index"])})


def _times(values: list[Any]) -> Times:
    samples, others, floor_us, note, health = values
    return Times(
        tuple(map(float, samples)), tuple(map(float, others)), floor_us, note, tuple(health.items())
    )


def heading_of(name: str, line: str) -> Heading:
    """The heading in a file's first line; UsageError when it is none that this version reads."""
    try:
        found = json.loads(line)
    except ValueError as error:
        raise _damaged(name, "its first line is no JSON") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise UsageError(f"{name} is no greenfast recording", code="not_a_recording")
    if found.get("version") != VERSION:
        raise UsageError(
            f"the recording {name} has version {found.get('version')}, and this greenfast reads {VERSION}",
            code="recording_version",
            mend="use the greenfast that wrote it, or a newer one",
        )
    try:
        return Heading(
            name=found["name"],
            kernel=found["kernel"],
            operation_digest=found["operation_digest"],
            checks_digest=found["checks_digest"],
            workloads=tuple(
                Workload(
                    workload["name"],
                    workload["title"],
                    _pairs(workload["dims"]),
                    _pairs(workload["options"]),
                )
                for workload in found["workloads"]
            ),
            template=found["template"],
            lattice=tuple((key, tuple(values)) for key, values in found["lattice"]),
            baseline=found["baseline"],
            templates=tuple(
                RecordedTemplate(
                    template["name"], template["text_digest"], tuple(template["parameters"])
                )
                for template in found["templates"]
            ),
            device=_device(found["device"]),
            protocol=Protocol(**found["protocol"]),
            environment=_pairs(found["environment"]),
            recorded_at=found["recorded_at"],
            complete=found["complete"],
            candidates=found["candidates"],
            timed=found["timed"],
            columns=Columns(tuple(found["ptxas_fields"]), tuple(found["check_fields"])),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(name, f"its heading lacks {error}") from error


def _device(found: dict[str, Any]) -> Device:
    """The facts as they were; those that a later greenfast asks for come from its own file of that GPU."""
    base = asdict(device(found["name"])) if found["name"] in device_names() else {}
    known = {field.name for field in fields(Device)}
    return Device(**{**base, **{name: value for name, value in found.items() if name in known}})


def _pairs(values: Any) -> tuple[tuple[str, Any], ...]:
    return tuple((key, value) for key, value in values)


def _inflated(name: str, data: bytes) -> str:
    """The text; gzip's own check sum tells damage."""
    inflater = zlib.decompressobj(wbits=31)
    try:
        text = inflater.decompress(data, LARGEST_BYTES)
        if not inflater.eof:
            too_long = f"it holds more than {LARGEST_BYTES} bytes"
            raise ValueError(too_long if inflater.unconsumed_tail else "it is cut off")
        return text.decode()
    except (zlib.error, ValueError) as error:
        raise _damaged(name, str(error)) from error


def _damaged(name: str, why: str) -> UsageError:
    return UsageError(
        f"the recording {name} is damaged: {shortened(why, 200)}",
        code="recording_damaged",
        mend="take it from where it came from again",
    )


def as_kept(check: CheckEvidence) -> CheckEvidence:
    """With its error figures as a file holds them. What is not finite is None in the evidence already."""
    figures = {name: getattr(check, name) for name in CHECK}
    return replace(
        check,
        **{name: rounded(value) for name, value in figures.items() if isinstance(value, float)},
    )


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
