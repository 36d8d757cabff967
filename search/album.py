"""The album: one small kernel for each way to fail, with the gate and reason that must catch it, and right ones.

Read from tests/kernels/album.toml of the repository, whose first lines say what its keys mean.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from search.candidate import Candidate, Origin, OriginKind, complete_parameters, preset_candidate
from search.catalogue import REPOSITORY_TEMPLATES, Catalogue
from search.check import merged
from search.errors import GreenfastError, SpecError, UsageError
from search.evaluate import Bench, evaluate
from search.gates.safety import checked_problems
from search.render import RenderedSource
from search.spec import KernelSpec
from search.tables import Table
from search.toolchain import Cubin
from search.verdict import Rejected, SafetyEvidence, SafetyFinding, Verdict, gate_result, verdict_name

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "kernels"
PATCHED = "wmma:flashcore_a"         # the preset of attention that patches are planted into
GREEN = "green"


@dataclass(frozen=True)
class AlbumEntry:
    """One candidate and what must come of it."""

    name: str
    kernel: str
    workload: str
    template: str
    parameters: tuple[tuple[str, object], ...]
    stage: str                       # empty: it must be green
    reasons: tuple[str, ...]
    may_show_in: str                 # another gate that may be first
    at: str                          # text of a line that a finding must name; empty: any
    finds: tuple[str, ...]           # kinds that a checked run must find, whichever gate comes first
    patch: tuple[str, str] | None    # (old, new) in attention's template

    @property
    def expected(self) -> str:
        return f"{self.stage}: {' or '.join(self.reasons)}" if self.stage else GREEN


@dataclass(frozen=True)
class AlbumAnswer:
    """What came of an entry; `why` is empty when it is what was expected."""

    entry: AlbumEntry
    got: str
    why: str
    findings: tuple[SafetyFinding, ...] = field(default=())


def album_entries(folder: Path = FOLDER) -> tuple[AlbumEntry, ...]:
    """All entries, right ones first; UsageError where the repository's album is not installed."""
    if not (folder / "album.toml").is_file():
        raise UsageError("the album is part of the repository, and is not installed here", code="no_album",
                         mend="run greenfast from a checkout")
    table = Table.read(folder / "album.toml", "album.toml")
    workloads = {name: str(workload) for name, workload in table.table("workloads").items()}
    found = [*_right(table, workloads), *_defects(table, workloads), *_patches(table, workloads)]
    table.finish()
    return tuple(found)


def _right(table: Table, workloads: dict[str, str]) -> Iterator[AlbumEntry]:
    for one in table.tables("right"):
        kernel, parameters = one.get("kernel", str), tuple(one.table("parameters").items())
        name = " ".join(f"{key}={value}".lower() for key, value in parameters)
        yield AlbumEntry(f"right {name}", kernel, one.get("workload", str, workloads[kernel]), "right", parameters, "", (),
                         "", "", (), None)
        one.finish()


def _defects(table: Table, workloads: dict[str, str]) -> Iterator[AlbumEntry]:
    for one in table.tables("defect"):
        kernel, name = one.get("kernel", str, "axpy"), one.get("name", str)
        yield _failing(one, name, kernel, "broken", (("defect", name),), workloads, None)


def _patches(table: Table, workloads: dict[str, str]) -> Iterator[AlbumEntry]:
    for one in table.tables("patch"):
        patch = (one.get("old", str), one.get("new", str))
        yield _failing(one, one.get("name", str), "attention", PATCHED.partition(":")[0], (), workloads, patch)


def _failing(one: Table, name: str, kernel: str, template: str, parameters: tuple, workloads: dict[str, str],
             patch: tuple[str, str] | None) -> AlbumEntry:
    green = one.get("verdict", str, "") == GREEN
    entry = AlbumEntry(name, kernel, one.get("workload", str, workloads[kernel]), template, parameters,
                       "" if green else one.get("stage", str), one.strings("reasons", []),
                       one.get("may_show_in", str, ""), one.get("at", str, ""), one.strings("finds", []), patch)
    one.finish()
    return entry


def judge_entry(entry: AlbumEntry, scratch: Path, bench_of: Callable[[Catalogue, KernelSpec, str, bool], Bench],
                folder: Path = FOLDER) -> AlbumAnswer:
    """Take one entry through all gates. `bench_of(catalogue, kernel, workload, impatient)` gives a bench;
    an impatient one is for kernels that do not end. `scratch` is an empty folder for a patched template."""
    catalogue = Catalogue([REPOSITORY_TEMPLATES, folder, *_patched(entry, scratch)])
    kernel = catalogue.kernel(entry.kernel)
    bench = bench_of(catalogue, kernel, entry.workload, "timeout" in entry.reasons)
    candidate = _candidate(entry, kernel, bench)
    done = evaluate(candidate, bench, None)
    findings = _findings(done.verdict)
    if entry.finds:
        findings = (*findings, *_checked(bench, candidate, done.source))
    got = _said(done.verdict)
    return AlbumAnswer(entry, got, _why_not(entry, done.verdict, got, findings, kernel), findings)


def _patched(entry: AlbumEntry, scratch: Path) -> tuple[Path, ...]:
    if entry.patch is None:
        return ()
    shutil.copytree(REPOSITORY_TEMPLATES / entry.kernel, scratch / entry.kernel)
    path = scratch / entry.kernel / f"{entry.template}.cu.j2"
    text = path.read_text("utf-8")
    if text.count(entry.patch[0]) != 1:
        raise SpecError(f"album.toml, {entry.name}: its text is not once in {path.name}", code="bad_spec")
    path.write_text(text.replace(*entry.patch), "utf-8")
    return (scratch,)


def _candidate(entry: AlbumEntry, kernel: KernelSpec, bench: Bench) -> Candidate:
    if entry.patch is not None:
        template, preset = kernel.preset(PATCHED)
        return preset_candidate(template, preset.name, bench.compiled)
    template = kernel.template(entry.template)
    return Candidate(kernel.name, template.name, complete_parameters(template, dict(entry.parameters), bench.compiled),
                     Origin(OriginKind.SEEDED))


def _findings(verdict: Verdict) -> tuple[SafetyFinding, ...]:
    result = gate_result(verdict, "safety")
    return result.evidence.findings if result and isinstance(result.evidence, SafetyEvidence) else ()


def _checked(bench: Bench, candidate: Candidate, source: RenderedSource | None) -> tuple[SafetyFinding, ...]:
    """What the checks see of a candidate that an earlier gate rejects already."""
    compiled = bench.toolchain.compile(source, bench.target.device.arch) if source else None
    if not isinstance(compiled, Cubin):
        return ()
    subject = bench.subject(candidate, source, compiled, None)
    return merged(one for run in bench.target.check(subject.program, checked_problems(subject)) or ()
                  for one in run.findings)


def _said(verdict: Verdict) -> str:
    match verdict:
        case Rejected():
            return f"{verdict.stage}: {verdict.reason}"
    return verdict_name(verdict)


def _why_not(entry: AlbumEntry, verdict: Verdict, got: str, findings: tuple[SafetyFinding, ...],
             kernel: KernelSpec) -> str:
    """What differs from the expectation; empty when nothing does."""
    if not entry.stage:
        return "" if got == GREEN else getattr(verdict, "sentence", "") or getattr(verdict, "message", "")
    if not isinstance(verdict, Rejected):
        return getattr(verdict, "message", "") or "no gate said no"
    if verdict.stage != entry.may_show_in and (verdict.stage != entry.stage or verdict.reason not in entry.reasons):
        return verdict.sentence
    missing = set(entry.finds) - {one.kind for one in findings}
    if entry.finds and missing == set(entry.finds):
        return "a checked run does not find " + " or ".join(sorted(missing))
    if entry.at and findings and not any(entry.at in text for one in findings for text in _texts(one, kernel)):
        return f"no finding names the line with {entry.at!r}"
    return ""


def _texts(finding: SafetyFinding, kernel: KernelSpec) -> Iterator[str]:
    for where in (finding.where, finding.other_where):
        if where is None or not where[0].startswith(f"{kernel.name}/"):
            continue
        try:
            lines = (kernel.folder.parent / where[0]).read_text("utf-8").splitlines()
        except (OSError, GreenfastError):
            continue
        yield lines[where[1] - 1] if where[1] <= len(lines) else ""
