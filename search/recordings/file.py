"""The file format: JSON lines in gzip, readable with `zcat`.

The first line is the heading, then comes one line per row, and a last line closes the file. A row
is a list in the order that the heading gives (`row_fields`, `ptxas_fields`, `check_fields`), which
keeps the file small and self-explanatory. Times are microseconds: those of a sweep with DIGITS
significant digits, those of other people as their file has them.
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
from greenfast.search.kernels.plain_file import open_plain, read_plain_file
from greenfast.search.kernels.workloads import Workload
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
from greenfast.search.text import not_parsed, one_line, shortened
from greenfast.search.toolchain.cache import write_atomically
from greenfast.search.verdict import CheckEvidence, PtxasEvidence

FORMAT, VERSION = "greenfast recording", 2
READABLE = (1, VERSION)  # 1 names the mode of a time in its note only
SUFFIX = ".recording.jsonl.gz"
DIGITS = 5
LONGEST_WHY = 200  # characters
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
TIMES = ("samples", "baseline_samples", "floor_us", "note", "health", "mode")


def rounded(value: float) -> float:
    """To DIGITS significant digits, as a sweep keeps a time. Verdicts are computed from these."""
    return float(f"{value:.{DIGITS}g}")


def write(path: Path, recording: Recording) -> None:
    """Write the file atomically. Equal contents give equal bytes.

    UsageError for a recording that is too large to be read again.
    """
    lines = [
        heading_json(recording.heading),
        *map(row_json, recording.rows),
        _dumps({"end": True, "rows": len(recording.rows)}),
    ]
    text = ("\n".join(lines) + "\n").encode()
    if len(text) > LARGEST_BYTES:
        raise UsageError(
            f"the recording {path.name} of {len(recording.rows):,} candidates would hold "
            f"{len(text) / 2**20:,.0f} MiB; a recording may hold {LARGEST_BYTES >> 20}",
            code="recording_too_large",
            mend="record or import fewer candidates",
        )
    write_atomically(path, gzip.compress(text, compresslevel=9, mtime=0))
    path.chmod(0o644)  # `write_atomically` leaves a file that only its owner can read


def read(path: Path) -> Recording:
    """UsageError for a file that is damaged, no recording, or of an unknown version."""
    try:
        data = read_plain_file(path, LARGEST_BYTES)
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
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise _damaged(path.name, not_parsed(error)) from error
    return Recording(heading, rows, hashlib.sha256(data).hexdigest())


def read_heading(path: Path) -> Heading:
    """The heading alone, from the first line: cheap, for listings."""
    try:
        with open_plain(path) as opened, gzip.open(opened, "rt", encoding="utf-8") as file:
            first = file.readline(LARGEST_BYTES)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise _damaged(path.name, str(error)) from error
    return heading_of(path.name, first)


def heading_json(heading: Heading) -> str:
    facts = asdict(heading)
    del facts["columns"]
    return _dumps(
        {
            "format": FORMAT,
            "version": VERSION,
            **facts,
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
            timing.samples,
            timing.baseline_samples,
            timing.floor_us,
            timing.note,
            dict(timing.health),
            timing.mode,
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
    """The row in a line; ValueError or TypeError for others, such as a half-written last line."""
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


def _check(values: dict[str, Any]) -> CheckEvidence:
    return CheckEvidence(**{**values, "worst_index": tuple(values["worst_index"])})


def _times(values: list[Any]) -> Times:
    samples, others, floor_us, note, health, *further = values
    (mode,) = further or (note.partition(",")[0],)  # version 1
    if mode not in ("hot", "cold"):
        raise ValueError(f"{mode!r} is not a cache mode")
    return Times(
        tuple(map(float, samples)),
        tuple(map(float, others)),
        floor_us,
        note,
        tuple(health.items()),
        mode,
    )


def heading_of(name: str, line: str) -> Heading:
    """The heading in a file's first line. UsageError when this version cannot read it."""
    try:
        heading = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _damaged(name, "its first line is not JSON") from error
    if not isinstance(heading, dict) or heading.get("format") != FORMAT:
        raise UsageError(f"{name} is not a greenfast recording", code="not_a_recording")
    if heading.get("version") not in READABLE:
        raise UsageError(
            f"the recording {name} has version {heading.get('version')}, "
            f"and this greenfast reads {' and '.join(map(str, READABLE))}",
            code="recording_version",
            mend="use the greenfast that wrote it, or a newer one",
        )
    try:
        return Heading(
            name=heading["name"],
            kernel=heading["kernel"],
            operation_digest=heading["operation_digest"],
            checks_digest=heading["checks_digest"],
            workloads=tuple(
                Workload(
                    workload["name"],
                    workload["title"],
                    _pairs(workload["dims"]),
                    _pairs(workload["options"]),
                )
                for workload in heading["workloads"]
            ),
            template=heading["template"],
            lattice=tuple((key, tuple(values)) for key, values in heading["lattice"]),
            baseline=heading["baseline"],
            templates=tuple(
                RecordedTemplate(
                    template["name"], template["text_digest"], tuple(template["parameters"])
                )
                for template in heading["templates"]
            ),
            device=_device(heading["device"]),
            protocol=Protocol(**heading["protocol"]),
            environment=_pairs(heading["environment"]),
            recorded_at=heading["recorded_at"],
            complete=heading["complete"],
            candidates=heading["candidates"],
            timed=heading["timed"],
            columns=Columns(tuple(heading["ptxas_fields"]), tuple(heading["check_fields"])),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(name, f"its heading lacks {error}") from error


def _device(facts: dict[str, Any]) -> Device:
    """The facts as recorded. Facts added since come from this version's file of that GPU."""
    base = asdict(device(facts["name"])) if facts["name"] in device_names() else {}
    known = {field.name for field in fields(Device)}
    return Device(**{**base, **{name: value for name, value in facts.items() if name in known}})


def _pairs(values: Any) -> tuple[tuple[str, Any], ...]:
    return tuple((key, value) for key, value in values)


def _inflated(name: str, data: bytes) -> str:
    """The text of a gzip file, whose checksum reveals damage."""
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
        f"the recording {name} is damaged: {shortened(one_line(why), LONGEST_WHY)}",
        code="recording_damaged",
        mend="copy it again from its source",
    )


def as_kept(check: CheckEvidence) -> CheckEvidence:
    """The check with its error figures rounded as in a file. Non-finite figures become None."""
    figures: dict[str, Any] = {
        name: rounded(value) for name in CHECK if isinstance(value := getattr(check, name), float)
    }
    return replace(check, **figures)


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
