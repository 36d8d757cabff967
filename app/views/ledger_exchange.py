"""The ledger as JSON lines: written with digests, and read as foreign records or not at all.

Line 1 describes the file; each further line holds a record and its digest. The header holds the
digest of all record lines, so that a line that was changed, added, dropped or moved is noticed.
Digests show damage and careless edits; they are no signature.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from greenfast.app.views.ablations import each_trial
from greenfast.app.views.base_schemas import Output, ScalarValue
from greenfast.app.views.ledger_reasons import rejection_problem
from greenfast.db.store import Store
from greenfast.search.errors import UsageError
from greenfast.search.kernels.plain_file import read_plain_file
from greenfast.search.shipped import own_version
from greenfast.search.text import not_parsed, shortened
from greenfast.search.verdict import Reason, Stage, TimeKind, VerdictName

FORMAT = 1
LARGEST_BYTES = 256 << 20
LONGEST_LINE = 1 << 20
MOST_RECORDS = 500_000
LONGEST_TEXT = 20_000
MOST_VALUES = 1_000
Number = float | None
Count = Annotated[int, Field(ge=0, lt=2**31)] | None
# The target that a kind of time comes from.
TARGETS = {TimeKind.MEASURED: "cuda:", TimeKind.MODELLED: "emulator:"}


def _printable(text: str) -> str:
    """Names are shown in tables, and some databases hold no NUL."""
    if not text.isprintable():
        raise ValueError("it holds characters that cannot be shown")
    return text


Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_printable)]


class LedgerHeader(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    ledger: int
    greenfast: str = Field(max_length=200)
    created_at: str = Field(max_length=40)
    records: int = Field(ge=0, le=MOST_RECORDS)
    digest: str = Field(pattern=r"^[0-9a-f]{64}$")


class LedgerRecord(BaseModel):
    """One trial with its scope. It claims no more than a stored trial can."""

    model_config = ConfigDict(extra="forbid")

    search_id: str = Field(pattern=r"^s_[a-z2-7]{12}$")
    number: int = Field(ge=0, lt=2**31)
    kernel: Name
    kernel_digest: str = Field(pattern=r"^[0-9a-f]{64}$")
    workloads: list[Annotated[str, AfterValidator(_printable)]] = Field(
        min_length=1, max_length=10_000
    )
    values: dict[str, ScalarValue] = Field(max_length=MOST_VALUES)
    target: Name
    mode: str = Field(max_length=20)
    environment: dict[str, str] = Field(
        max_length=MOST_VALUES, description="device, driver, toolchain, versions"
    )
    template: Name
    parameters: dict[str, ScalarValue] = Field(max_length=MOST_VALUES)
    candidate_digest: str = Field(pattern=r"^[0-9a-f]{64}$")
    source_digest: str | None = Field(pattern=r"^[0-9a-f]{64}$")
    is_baseline: bool
    verdict: VerdictName
    stage: Stage | None
    reason: Reason | None
    sentence: str = Field(max_length=LONGEST_TEXT)
    time_median_us: Number
    time_kind: TimeKind | None
    ratio_to_baseline: Number
    registers: Count
    spill_bytes: Count
    smem_bytes: Count
    recorded_at: str = Field(max_length=40)

    @model_validator(mode="after")
    def claims_no_more_than_its_evidence(self) -> LedgerRecord:
        if self.verdict is VerdictName.FAULTED:
            raise ValueError("a faulted trial is no evidence about its candidate")
        if (self.verdict is VerdictName.REJECTED) != (self.reason is not None):
            raise ValueError("a rejected trial has a reason, and only a rejected one")
        if (self.reason is None) != (self.stage is None):
            raise ValueError("a reason and a failing stage belong together")
        if self.stage is not None and self.reason is not None:
            self._could_be_rejected_so(self.stage, self.reason)
        if self.verdict is VerdictName.ACCEPTED:
            self._was_shown_to_be_faster()
        if self.time_kind in TARGETS and not self.target.startswith(TARGETS[self.time_kind]):
            raise ValueError(f"{self.target} gives no {self.time_kind} times")
        if (self.time_median_us is None) != (self.time_kind is None):
            raise ValueError("a time has a kind, and only a time")
        for name in ("time_median_us", "ratio_to_baseline"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} is {value}, not a number above 0")
        if self.ratio_to_baseline is not None and self.time_median_us is None:
            raise ValueError("a ratio without a time")
        return self

    def _could_be_rejected_so(self, stage: Stage, reason: Reason) -> None:
        problem = rejection_problem(
            stage,
            reason,
            has_time=self.time_median_us is not None,
            has_registers=self.registers is not None,
        )
        if problem is not None:
            raise ValueError(problem)

    def _was_shown_to_be_faster(self) -> None:
        if self.time_kind is not TimeKind.MEASURED:
            raise ValueError("only a measured time makes a trial accepted")
        if self.is_baseline or self.ratio_to_baseline is None or self.ratio_to_baseline >= 1:
            raise ValueError("an accepted trial is faster than another one, the baseline")


class ForeignOut(Output):
    """A record of another ledger: nothing here measured it."""

    digest: str
    ledger_digest: str
    imported_at: str
    record: LedgerRecord


def export_lines(store: Store, search_ids: Iterable[str]) -> Iterator[str]:
    """The whole file, line by line; faulted trials say nothing and are left out."""
    lines = [
        _record_line(record) for search_id in search_ids for record in _records(store, search_id)
    ]
    yield json.dumps(
        {
            "ledger": FORMAT,
            "greenfast": own_version(),
            "created_at": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            "records": len(lines),
            "digest": _digest_of_lines(lines),
        }
    )
    yield from lines


def _records(store: Store, search_id: str) -> Iterator[LedgerRecord]:
    plan = store.plan(search_id)
    environment: dict[str, str] = {}
    for row in each_trial(store, search_id):
        if row.verdict is None or row.verdict == VerdictName.FAULTED:
            continue
        environment = environment or store.trial(search_id, row.number).environment
        yield LedgerRecord(
            search_id=search_id,
            number=row.number,
            kernel=plan.kernel,
            kernel_digest=plan.kernel_digest,
            workloads=list(plan.workloads),
            values=dict(plan.compiled),
            target=plan.target,
            mode=plan.mode,
            environment=environment,
            template=row.template,
            parameters=row.parameters,
            candidate_digest=row.candidate_digest,
            source_digest=row.source_digest,
            is_baseline=row.is_baseline,
            verdict=VerdictName(row.verdict),
            stage=Stage(row.stage) if row.stage else None,
            reason=Reason(row.reason) if row.reason else None,
            sentence=row.sentence[:LONGEST_TEXT],
            time_median_us=row.time_median_us,
            time_kind=TimeKind(row.time_kind) if row.time_kind else None,
            ratio_to_baseline=row.ratio_to_baseline,
            registers=row.registers,
            spill_bytes=row.spill_bytes,
            smem_bytes=row.smem_bytes,
            recorded_at=row.recorded_at or "",
        )


def _canonical(record: Mapping[str, Any]) -> str:
    return json.dumps(record, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _record_line(record: LedgerRecord) -> str:
    content = record.model_dump(mode="json")
    return json.dumps({"record": content, "digest": _digest(_canonical(content))})


def _digest_of_lines(lines: Iterable[str]) -> str:
    whole = hashlib.sha256()
    for line in lines:
        whole.update(f"{json.loads(line)['digest']}\n".encode())
    return whole.hexdigest()


def import_file(store: Store, path: Path) -> tuple[int, int]:
    """(records in the file, new ones). All are stored as foreign, or none.

    UsageError: ledger_foreign, ledger_newer, ledger_tampered, ledger_invalid, each with its line.
    """
    lines = _lines_of(path)
    header = _header(lines[0] if lines else "")
    records = [_record(line, number) for number, line in enumerate(lines[1:], 2)]
    if len(records) != header.records:
        raise _refused(
            "tampered", 1, f"it announces {header.records} records, and {len(records)} follow"
        )
    if _digest_of_lines(lines[1:]) != header.digest:
        raise _refused("tampered", 1, "its digest does not match the records that follow")
    _require_each_once(records)
    rows = ((digest, record.kernel, _canonical(content)) for digest, record, content in records)
    return len(records), store.import_foreign(header.digest, rows)


def _require_each_once(records: Iterable[tuple[str, LedgerRecord, Any]]) -> None:
    """A trial has one line."""
    seen: dict[tuple[str, int], int] = {}
    for line, (_, record, _) in enumerate(records, 2):
        first = seen.setdefault((record.search_id, record.number), line)
        if first != line:
            raise _refused("invalid", line, f"it holds the same trial as line {first}")


def _lines_of(path: Path) -> list[str]:
    try:
        content = read_plain_file(path, LARGEST_BYTES)
        if len(content) > LARGEST_BYTES:
            raise UsageError(
                f"{path} holds more than {LARGEST_BYTES >> 20} MiB", code="ledger_invalid"
            )
        text = content.decode("utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", code="unreadable") from error
    except UnicodeDecodeError as error:
        raise _refused("foreign", 1, "it is not text in UTF-8") from error
    lines = text.split("\n")
    return lines[:-1] if lines and not lines[-1] else lines


def _header(line: str) -> LedgerHeader:
    content = _json(line, 1, "foreign")
    if not isinstance(content, dict) or "ledger" not in content:
        raise _refused("foreign", 1, "it does not begin as a ledger of greenfast does")
    version = content["ledger"]
    if type(version) is int and version > FORMAT:
        raise _refused(
            "newer", 1, f"its form is {version}, and this greenfast reads up to {FORMAT}"
        )
    if version != FORMAT or type(version) is not int:
        raise _refused("foreign", 1, f"{version!r} is not a known ledger format")
    try:
        return LedgerHeader.model_validate(content)
    except ValidationError as error:
        raise _refused("invalid", 1, _first_error(error)) from error


def _record(line: str, number: int) -> tuple[str, LedgerRecord, dict[str, Any]]:
    content = _json(line, number, "invalid")
    if not isinstance(content, dict) or content.keys() != {"record", "digest"}:
        raise _refused("invalid", number, "a line holds a record and its digest")
    record = content["record"]
    if not isinstance(record, dict):
        raise _refused("invalid", number, "its record is not an object")
    try:
        digest = _digest(_canonical(record))
    except ValueError as error:
        raise _refused("invalid", number, str(error)) from error
    if digest != content["digest"]:
        raise _refused("tampered", number, "its digest does not match its record")
    try:
        checked = LedgerRecord.model_validate_json(_canonical(record), strict=True)
        return digest, checked, record
    except ValidationError as error:
        raise _refused("invalid", number, _first_error(error)) from error


def _json(line: str, number: int, kind: str) -> Any:
    if len(line) > LONGEST_LINE:
        raise _refused(kind, number, f"it is longer than {LONGEST_LINE} characters")
    try:
        return json.loads(line, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise _refused(kind, number, f"it is not JSON: {shortened(not_parsed(error))}") from error


def _no_constant(name: str) -> None:
    raise ValueError(name)


def _first_error(error: ValidationError) -> str:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])[:200]
    words = str(first["msg"]).removeprefix("Value error, ")
    return f"{place}: {words}" if place else words


def _refused(kind: str, line: int, why: str) -> UsageError:
    return UsageError(
        f"the ledger is refused, line {line}: {why}",
        code=f"ledger_{kind}",
        mend="nothing of it was imported",
    )


def foreign_out(store: Store, kernel: str | None = None, limit: int = 500) -> list[ForeignOut]:
    """Records of other ledgers, newest first."""
    return [
        ForeignOut(
            digest=row.digest,
            ledger_digest=row.ledger_digest,
            imported_at=row.imported_at,
            record=LedgerRecord.model_validate_json(row.record),
        )
        for row in store.foreign(kernel, limit)
    ]
