"""Why a candidate is wrong: the first wrong stage, the first failing step, the error's shape.

Probes name the stage, a ladder of features names the value, a checked run names the lines. Each of
them may find nothing; the conclusion claims no more than they show.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from greenfast.search.diagnose.explanation_error import (
    ErrorShape,
    error_of_subject,
    with_length,
)
from greenfast.search.diagnose.explanation_stage import (
    ACCESS,
    PROBES,
    SAFETY,
    first_stage,
    probe_tiles,
)
from greenfast.search.diagnose.ladder import Ladder, climb
from greenfast.search.diagnose.probes import ProbeReport, probe_candidate
from greenfast.search.errors import GreenfastError, UsageError
from greenfast.search.gates.base import Subject
from greenfast.search.gates.safety import checked_problems, unseen_assembly
from greenfast.search.loop.evaluate import EvaluationContext, prepare
from greenfast.search.space.candidate import Candidate
from greenfast.search.space.space import resolve
from greenfast.search.targets.base import Runner
from greenfast.search.text import file_line
from greenfast.search.verdict import (
    CheckEvidence,
    CorrectnessEvidence,
    Rejected,
    SafetyEvidence,
    SafetyFinding,
    Stage,
    evidence_of,
)

EXPLAINED = (Stage.CORRECTNESS, Stage.SAFETY)
MOST_FINDINGS = 6
T = TypeVar("T")


@dataclass(frozen=True)
class StageReport:
    """One probed stage, in the order of the computation."""

    name: str
    outcome: str  # right | wrong | missing | failed
    sentence: str
    suspect: str


@dataclass(frozen=True)
class Explanation:
    """The findings about one wrong candidate."""

    stage: str  # of the rejection
    reason: str
    sentence: str
    first_stage: str  # of the computation: a probe's name; "" where none is known to be wrong
    shown_by: str  # "probes" | "safety" | "access" | "": what names that stage
    stages: tuple[StageReport, ...]
    not_probed: str  # why there are no stages
    ladder: Ladder | None
    error: ErrorShape | None
    lengths: str
    findings: tuple[SafetyFinding, ...]
    findings_of: str  # "the safety gate" | "a checked run" | ""
    conclusion: str
    problems: tuple[str, ...] = ()  # parts that a fault of ours prevented
    why_stage: str = ""  # the reason for another stage than the first whose values are wrong


def explain(
    context: EvaluationContext,
    candidate: Candidate,
    verdict: Rejected,
    *,
    with_ladder: bool = True,
) -> Explanation:
    """Look into a wrong candidate. UsageError for a verdict that is no wrong result."""
    if verdict.stage not in EXPLAINED:
        raise UsageError(
            f"the candidate was rejected at {verdict.stage} ({verdict.reason}), which its sentence "
            f"explains: {verdict.sentence}",
            code="nothing_to_explain",
            mend="only wrong results can be explained by probes and ladders",
        )
    failing = failing_checks(verdict)
    problems: list[str] = []
    subject = prepare(candidate, context, with_cubin=context.target.measures)
    findings: list[SafetyFinding] = list(_stored_findings(verdict))
    findings_of = "the safety gate" if findings else ""
    error = None
    if isinstance(subject, Subject):
        if not findings:
            findings = _kept(lambda: _checked(subject), problems, "checked run") or []
            findings_of = "a checked run" if findings else ""
        error = _kept(lambda: error_of_subject(subject, failing), problems, "error")
    reports, not_probed = _probed(context, candidate, problems)
    ladder = None
    if with_ladder:
        ladder = _kept(
            lambda: climb(context, candidate, failing, verdict.stage), problems, "ladder"
        )
    template = context.kernel.template(candidate.template)
    point = resolve(template, candidate.parameters, context.compiled, context.target.device)
    tiles = {**point.tiles, **probe_tiles(template, {**point.values, **point.tiles})}
    stage, shown_by, why_stage = first_stage(
        context.kernel, template, tiles, reports, findings, verdict.sentence
    )
    explanation = Explanation(
        str(verdict.stage),
        str(verdict.reason),
        verdict.sentence,
        stage,
        shown_by,
        tuple(
            StageReport(report.probe, report.outcome, report.sentence, report.suspect)
            for report in reports
        ),
        not_probed,
        ladder,
        error,
        with_length(_checks(verdict)),
        tuple(findings[:MOST_FINDINGS]),
        findings_of,
        "",
        tuple(problems),
        why_stage,
    )
    return replace(explanation, conclusion=conclusion_of(explanation))


def failing_checks(verdict: Rejected) -> tuple[str, ...]:
    """The names of the checks that failed, each once, in their order."""
    return tuple(dict.fromkeys(check.workload for check in _checks(verdict) if not check.passed))


def _checks(verdict: Rejected) -> tuple[CheckEvidence, ...]:
    evidence = evidence_of(verdict.gates, CorrectnessEvidence)
    return evidence.checks if evidence is not None else ()


def _stored_findings(verdict: Rejected) -> tuple[SafetyFinding, ...]:
    evidence = evidence_of(verdict.gates, SafetyEvidence)
    return evidence.findings if evidence is not None else ()


def _checked(subject: Subject) -> list[SafetyFinding]:
    """Findings of a checked run, which the safety gate did not come to."""
    checker: Runner | None = subject.conditions.checker
    target = subject.target if not subject.target.measures else checker
    if target is None or unseen_assembly(subject.source, target):
        return []
    program = (
        subject.program if target is subject.target else target.load(subject.source, subject.cubin)
    )
    for run in target.check(program, checked_problems(subject)) or ():
        if run.findings:
            return list(run.findings)
    return []


def _probed(
    context: EvaluationContext, candidate: Candidate, problems: list[str]
) -> tuple[tuple[ProbeReport, ...], str]:
    """(reports, why there are none)"""
    if not context.kernel.probes:
        return (), f"kernel {context.kernel.name} has no probes"
    if not context.kernel.template(candidate.template).probes:
        return (), f"template {candidate.template} has no probes"
    try:
        return probe_candidate(context, candidate), ""
    except UsageError as error:
        return (), str(error)
    except GreenfastError as error:
        problems.append(f"probes: {error}")
        return (), str(error)


def conclusion_of(explanation: Explanation) -> str:
    """One sentence on the cause, as far as it is shown."""
    parts = []
    wrong = next((each for each in explanation.stages if each.outcome in ("wrong", "failed")), None)
    if explanation.why_stage:
        parts.append(
            f"the fault is in the stage {explanation.first_stage}: {explanation.why_stage}"
        )
        parts += [f"{wrong.name}: {wrong.sentence}"] if wrong is not None else []
    elif explanation.shown_by == PROBES and wrong is not None:
        parts.append(f"the first wrong stage is {wrong.name}: {wrong.sentence}")
    elif explanation.shown_by == SAFETY:
        parts.append(f"the finding's lines belong to the stage {explanation.first_stage}")
    elif explanation.shown_by == ACCESS:
        parts.append(
            f"the bad access belongs to the stage {explanation.first_stage}: {explanation.sentence}"
        )
    elif wrong is not None:
        parts.append(f"no stage runs to its end, so none is shown to be wrong: {wrong.sentence}")
    elif explanation.stages:
        parts.append("every probed stage is correct by itself")
    if explanation.findings:
        parts.append(f"{explanation.findings_of} shows {finding_words(explanation.findings[0])}")
    ladder = explanation.ladder
    if ladder is not None and (ladder.first_failing is not None or ladder.why):
        parts.append(ladder.sentence)
    if not parts and explanation.error is not None and explanation.error.sentences:
        parts.append(explanation.error.sentences[0])
    return "; ".join(parts) or explanation.sentence


def finding_words(finding: SafetyFinding) -> str:
    """`race: ... (attention/wmma.cu.j2:57)`"""
    place = f" ({file_line(*finding.where)})" if finding.where else ""
    known = finding.sentence if finding.where is None else finding.sentence.rstrip(".")
    return f"{finding.kind}: {known}{'' if place.strip(' ()') in known else place}"


def _kept(work: Callable[[], T], problems: list[str], what: str) -> T | None:
    """The result of `work`; None, with the reason among the problems, where it fails."""
    try:
        return work()
    except GreenfastError as error:
        problems.append(f"{what}: {error}")
    return None
