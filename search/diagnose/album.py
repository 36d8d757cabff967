"""The album (tests/kernels/album.toml): one small kernel for each way to fail, and correct ones.

`greenfast album` runs it, tests/contracts/test_album.py tests every entry, and
bench/correctness/planted.py makes a table of it.
"""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from greenfast.search.errors import SpecError, UsageError
from greenfast.search.gates import GateLimits, Subject
from greenfast.search.gates.promises import Siblings
from greenfast.search.gates.safety import checked_problems
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.kernels.expressions import Value
from greenfast.search.kernels.spec import TemplateSpec
from greenfast.search.loop.evaluate import Evaluated, EvaluationContext, evaluate, prepare
from greenfast.search.shipped import ALBUM, KERNEL_TEMPLATES
from greenfast.search.space.candidate import (
    Candidate,
    Origin,
    OriginKind,
    complete_parameters,
    preset_candidate,
)
from greenfast.search.targets.base import Runner
from greenfast.search.toolchain import Toolchain
from greenfast.search.verdict import (
    Green,
    Rejected,
    SafetyEvidence,
    SafetyFinding,
    Trial,
    Verdict,
    VerdictName,
    verdict_name,
)

FOLDER = ALBUM
ALBUM_SECRET = 1  # no secret: an entry's verdict is the same in every run
PATCHED_PRESETS = {"wmma": "stage2", "mma": "fa2"}  # unless the entry names another


@dataclass(frozen=True)
class Entry:
    """One kernel of the album. A `stage` of "" means that every gate must pass it."""

    kind: str  # "right" | "defect" | "patch"
    name: str
    kernel: str
    template: str
    workload: str
    parameters: Mapping[str, Value] = field(default_factory=dict)
    stage: str = ""
    reasons: tuple[str, ...] = ()
    may_show_in: str = ""
    at: str = ""
    finds: tuple[str, ...] = ()
    old: str = ""  # of a patch
    new: str = ""
    preset: str = ""
    # The parameters in which an earlier sibling differs.
    sibling: Mapping[str, Value] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return f"{self.kernel}-{self.name}"

    @property
    def expected(self) -> str:
        return f"{self.stage}: {' or '.join(self.reasons)}" if self.stage else VerdictName.GREEN

    @property
    def impatient(self) -> bool:
        """Short time limits for a kernel that never ends."""
        return "timeout" in self.reasons


def entries() -> tuple[Entry, ...]:
    """All entries; UsageError if greenfast is installed without its repository."""
    if not (FOLDER / "album.toml").is_file():
        raise UsageError(
            "the album is part of the repository, and is not installed here",
            code="no_album",
            mend="run greenfast from a checkout",
        )
    tables = tomllib.loads((FOLDER / "album.toml").read_text("utf-8"))
    workloads = tables.pop("workloads")
    return tuple(
        _entry(kind, dict(row), workloads) for kind, rows in tables.items() for row in rows
    )


def _entry(kind: str, table: dict[str, Any], workloads: Mapping[str, str]) -> Entry:
    kernel = table.pop("kernel", "attention" if kind == "patch" else "axpy")
    parameters = table.pop("parameters", {})
    if kind == "defect":
        parameters = {"defect": table["name"]}
    name = table.pop("name", "") or "-".join(f"{key}={value}" for key, value in parameters.items())
    table.pop("verdict", None)  # "green": no stage
    template = {"right": "right", "defect": "broken"}.get(kind) or table.pop("template", "wmma")
    if kind == "patch" and "preset" not in table:
        table["preset"] = PATCHED_PRESETS[template]
    workload = table.pop("workload", workloads[kernel])
    reasons, finds = (tuple(table.pop(key, ())) for key in ("reasons", "finds"))
    return Entry(
        kind, name, kernel, template, workload, parameters, reasons=reasons, finds=finds, **table
    )


def catalogue_of(entry: Entry, folder: Path) -> Catalogue:
    """A catalogue with the entry's kernel; a patch changes a copy of its kernel in `folder`."""
    if entry.kind != "patch":
        return _unpatched()
    shipped, target = KERNEL_TEMPLATES / entry.kernel, folder / entry.kernel
    shutil.copytree(shipped, target)
    files = _unpatched().kernel(entry.kernel).template(entry.template).files.values()
    texts = {folder / path.relative_to(KERNEL_TEMPLATES): path.read_text("utf-8") for path in files}
    places = {path: text.count(entry.old) for path, text in texts.items()}
    if sum(places.values()) != 1:
        raise SpecError(
            f"{entry.id}: template {entry.template} holds the text to change "
            f"{sum(places.values())} times"
        )
    path = max(places, key=places.__getitem__)
    path.parent.mkdir(parents=True, exist_ok=True)  # a part of another kernel
    path.write_text(texts[path].replace(entry.old, entry.new), "utf-8")
    return Catalogue([KERNEL_TEMPLATES, folder])


@cache
def _unpatched() -> Catalogue:
    """One catalogue for all entries, so that they share each kernel's reference results."""
    return Catalogue([KERNEL_TEMPLATES, FOLDER])


@dataclass(frozen=True)
class Judged:
    """The result of an entry; `sentence` names the expected result, and is empty if it occurred."""

    entry: Entry
    evaluated: Evaluated
    findings: tuple[
        SafetyFinding, ...
    ]  # of the safety gate, or of a checked run if an earlier gate failed
    sentence: str

    @property
    def got(self) -> str:
        verdict = self.evaluated.verdict
        return (
            f"{verdict.stage}: {verdict.reason}"
            if isinstance(verdict, Rejected)
            else verdict_name(verdict)
        )


def judge(entry: Entry, catalogue: Catalogue, target: Runner, toolchain: Toolchain) -> Judged:
    kernel = catalogue.kernel(entry.kernel)
    workload = kernel.workload(entry.workload)
    compiled = workload.compile_time(kernel)
    context = EvaluationContext(
        kernel,
        compiled,
        (workload,),
        target,
        toolchain,
        catalogue.include_dirs,
        GateLimits(),
        0,
        sizes_secret=ALBUM_SECRET,
    )
    candidate = _candidate(entry, context)
    if entry.sibling:
        context = _after_sibling(entry, context)
    done = evaluate(candidate, context)
    findings = _findings_in(done.verdict)
    sentence = _mismatch(entry, done.verdict)
    if entry.finds and not findings and not sentence:
        findings = _checked(candidate, context)
        kinds = {finding.kind for finding in findings}
        if not kinds & set(entry.finds):
            sentence = (
                f"a checked run found {sorted(kinds) or 'nothing'}, not {' or '.join(entry.finds)}"
            )
    if entry.at and findings and not sentence:
        sentence = _elsewhere(entry, kernel.template(entry.template), findings)
    return Judged(entry, done, findings, sentence)


def _after_sibling(entry: Entry, context: EvaluationContext) -> EvaluationContext:
    """The context of a search in which the entry's sibling was trial 0."""
    siblings = Siblings(context.kernel)
    context = replace(context, siblings=siblings)
    sibling = _candidate(replace(entry, parameters={**entry.parameters, **entry.sibling}), context)
    siblings.learn(Trial(0, sibling, evaluate(sibling, context).verdict, None, 0.0))
    return context


def _candidate(entry: Entry, context: EvaluationContext) -> Candidate:
    template = context.kernel.template(entry.template)
    if entry.kind == "patch":
        return preset_candidate(template, entry.preset, context.compiled, entry.parameters)
    parameters = complete_parameters(template, entry.parameters, context.compiled)
    return Candidate(context.kernel.name, template.name, parameters, Origin(OriginKind.SEEDED))


def _mismatch(entry: Entry, verdict: Verdict) -> str:
    name = verdict_name(verdict)
    if not entry.stage:
        return (
            ""
            if isinstance(verdict, Green)
            else f"expected green, not {name}: {getattr(verdict, 'sentence', verdict)}"
        )
    expected = entry.expected
    if not isinstance(verdict, Rejected):
        seen = verdict if name is VerdictName.FAULTED else "nothing was seen"
        return f"expected {expected}, not {name}: {seen}"
    if not verdict.sentence or "\n" in verdict.sentence:
        return f"the sentence of the verdict is not a sentence: {verdict.sentence!r}"
    if (
        verdict.stage == entry.stage and verdict.reason in entry.reasons
    ) or verdict.stage == entry.may_show_in:
        return ""
    return f"expected {expected}, not {verdict.stage}: {verdict.reason}: {verdict.sentence}"


def _findings_in(verdict: Verdict) -> tuple[SafetyFinding, ...]:
    gates = getattr(verdict, "gates", ())
    return tuple(
        finding
        for gate in gates
        if isinstance(gate.evidence, SafetyEvidence)
        for finding in gate.evidence.findings
    )


def _checked(candidate: Candidate, context: EvaluationContext) -> tuple[SafetyFinding, ...]:
    """The findings of the first checked run that has some."""
    subject = prepare(candidate, context, with_cubin=False)
    assert isinstance(subject, Subject)
    for run in subject.target.check(subject.program, checked_problems(subject)) or ():
        if run.findings:
            return run.findings
    return ()


def _elsewhere(entry: Entry, template: TemplateSpec, findings: Iterable[SafetyFinding]) -> str:
    """Empty when a finding names a line that contains `at`."""
    places = {
        (line.file, line.number)
        for text, line in zip(template.text.split("\n"), template.lines, strict=True)
        if entry.at in text
    }
    if not places:
        return f"no line of {entry.kernel}/{template.name} holds {entry.at!r}"
    named = [
        where
        for finding in findings
        for where in (finding.where, finding.other_where)
        if where is not None
    ]
    if places & {tuple(place) for place in named}:
        return ""
    return f"expected a finding at {sorted(places)}, not at {named}"
