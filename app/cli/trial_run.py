"""One candidate through all gates, outside any search: the work of `greenfast trial`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from greenfast.app.wiring import Services
from greenfast.search.diagnose.probes import probe_command
from greenfast.search.errors import UsageError
from greenfast.search.gates import GATES
from greenfast.search.kernels.expressions import Value
from greenfast.search.kernels.spec import KernelSpec, TemplateSpec
from greenfast.search.loop.evaluate import Evaluated, EvaluationContext, evaluate, timings_of
from greenfast.search.loop.plan import NO_BASELINE, SearchPlan, SearchRequest
from greenfast.search.loop.start import baseline_candidate
from greenfast.search.space.candidate import (
    Candidate,
    Origin,
    OriginKind,
    complete_parameters,
    preset_candidate,
)
from greenfast.search.text import abridged
from greenfast.search.timing import geometric_mean
from greenfast.search.verdict import (
    CorrectnessEvidence,
    Failed,
    Faulted,
    GateResult,
    Rejected,
    Skipped,
    Verdict,
    VerdictName,
    gate_result,
    performance_of,
    verdict_name,
)

LONGEST_LOG = 32_000  # characters
EXIT_CODES = {
    VerdictName.ACCEPTED: 0,
    VerdictName.GREEN: 0,
    VerdictName.REJECTED: 1,
    VerdictName.FAULTED: 3,
}
JSON = dict[str, Any]


@dataclass(frozen=True)
class TrialRequest:
    """A candidate as the command line names it; `settings` are name=value texts."""

    kernel: str
    template: str
    preset: str | None = None
    settings: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    target: str | None = None
    seed: int | None = None
    with_baseline: bool = True


@dataclass(frozen=True)
class TrialResult:
    plan: SearchPlan
    candidate: Candidate
    evaluated: Evaluated
    baseline: Evaluated | None  # None: not requested, or the candidate is the baseline
    probe: str = ""  # the command that finds the stage at which a wrong candidate goes wrong


def run_trial(services: Services, request: TrialRequest) -> TrialResult:
    """Evaluate the baseline, if there is one, then the candidate.

    UsageError for unknown names and for a point outside the space.
    """
    kernel = services.catalogue.kernel(request.kernel)
    template = kernel.template(request.template)
    plan = requested_plan(services, request, _baseline(kernel, request))
    context = services.context(plan)
    candidate = requested_candidate(context, template, request)
    context.target.prepare()
    baseline = None
    if plan.baseline != NO_BASELINE:
        compared_with = baseline_candidate(plan, context)
        if compared_with.digest != candidate.digest:
            baseline = evaluate(compared_with, context)
            context = dataclasses.replace(
                context, baseline=compared_with, min_gain=plan.min_gain, mode=plan.mode
            )
    evaluated = evaluate(
        candidate, context, lambda: timings_of(baseline.verdict) if baseline else None
    )
    probe = _probe(kernel, plan, candidate, evaluated.verdict)
    return TrialResult(plan, candidate, evaluated, baseline, probe)


def _probe(kernel: KernelSpec, plan: SearchPlan, candidate: Candidate, verdict: Verdict) -> str:
    correctness = gate_result(verdict, "correctness")
    if (
        not isinstance(verdict, Rejected)
        or not isinstance(correctness, Failed)
        or plan.target.startswith("replay:")
    ):
        return ""
    evidence = correctness.evidence
    checks = evidence.checks if isinstance(evidence, CorrectnessEvidence) else ()
    case = next((check.workload for check in checks if not check.passed), "")
    return probe_command(
        kernel, candidate.template, candidate.values(), plan.workloads[0], plan.target, case
    )


def _baseline(kernel: KernelSpec, request: TrialRequest) -> str | None:
    """The kernel's own baseline, not a champion. A recording brings its own."""
    if not request.with_baseline:
        return NO_BASELINE
    return None if (request.target or "").startswith("replay:") else kernel.baseline


def requested_plan(
    services: Services, request: TrialRequest, baseline: str | None = NO_BASELINE
) -> SearchPlan:
    """The plan of a search for the one candidate."""
    return services.plan(
        SearchRequest(
            kernel=request.kernel,
            workloads=request.workloads or None,
            templates=(request.template,),
            target=request.target,
            trials=1,
            seed=request.seed or 0,
            baseline=baseline,
        )
    )


def requested_candidate(
    context: EvaluationContext, template: TemplateSpec, request: TrialRequest
) -> Candidate:
    """The preset or the defaults, with the requested parameters changed.

    UsageError for a point outside the space.
    """
    changes = parse_settings(template, request.settings)
    if request.preset is not None:
        candidate = preset_candidate(template, request.preset, context.compiled, changes)
    else:
        candidate = Candidate(
            template.kernel,
            template.name,
            complete_parameters(template, changes, context.compiled),
            Origin(OriginKind.SEEDED),
        )
    context.target.space(template, context.compiled).require(candidate.parameters)
    return candidate


def parse_settings(template: TemplateSpec, texts: Sequence[str]) -> dict[str, Value]:
    """`name=value` texts as typed values of the template's parameters."""
    values: dict[str, Value] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator:
            raise UsageError(
                f"--set {text!r} has no value",
                code="bad_setting_text",
                mend="write --set NAME=VALUE",
            )
        if name in values:
            raise UsageError(f"--set names {name} twice", code="repeated_parameter")
        values[name] = template.parameter(name).parse(value)
    return values


def trial_report(result: TrialResult) -> JSON:
    """The object that --json prints: verdict, gates with evidence, time, digests."""
    report = {
        "kernel": result.plan.kernel,
        "template": result.candidate.template,
        "preset": result.candidate.origin.preset or None,
        "parameters": result.candidate.values(),
        "workloads": list(result.plan.workloads),
        "target": result.plan.target,
        "seed": result.plan.seed,
        "candidate_digest": result.candidate.digest,
        **evaluated_report(result.evaluated),
        "probe": result.probe or None,
        "baseline": None,
    }
    if result.baseline is not None:
        report["baseline"] = {"name": result.plan.baseline, **evaluated_report(result.baseline)}
        del report["baseline"]["log"], report["baseline"]["gates"]
    return report


def evaluated_report(evaluated: Evaluated) -> JSON:
    """The part of a report that a candidate and its baseline share."""
    verdict = evaluated.verdict
    performance = performance_of(verdict)
    timings = performance.timings if performance else ()
    mode = performance.mode if performance else ""
    return {
        "verdict": verdict_name(verdict),
        "stage": getattr(verdict, "stage", None),
        "reason": getattr(verdict, "reason", None),
        "sentence": sentence_of(verdict),
        "code": verdict.code if isinstance(verdict, Faulted) else None,
        "time_median_us": geometric_mean([timing.time_median_us for timing in timings])
        if timings
        else None,
        "time_kind": timings[0].time_kind if timings else None,
        "time_mode": mode or None,
        "ratio_to_baseline": performance.ratio_to_baseline if performance else None,
        "source_digest": evaluated.source.digest if evaluated.source else None,
        "duration_s": round(evaluated.duration_s, 3),
        "stage_seconds": {name: round(seconds, 6) for name, seconds in evaluated.stage_seconds},
        "gates": gates_report(verdict),
        "log": abridged(getattr(verdict, "log", ""), LONGEST_LOG),
    }


def sentence_of(verdict: Verdict) -> str:
    """The verdict in one sentence."""
    match verdict:
        case Rejected():
            return verdict.sentence
        case Faulted():
            return verdict.message
    performance = gate_result(verdict, "performance")
    return performance.sentence if performance else "correct"


def gates_report(verdict: Verdict) -> JSON:
    """Every gate by name, in order, those that were not reached included."""
    skipped = f"not reached: {getattr(verdict, 'stage', 'an earlier step')} failed"
    return {
        gate.name: gate_report(gate_result(verdict, gate.name) or Skipped(gate.name, skipped))
        for gate in GATES
    }


def gate_report(result: GateResult) -> JSON:
    """Outcome, sentence and reason, and the fields of the evidence."""
    evidence = dataclasses.asdict(result.evidence) if result.evidence is not None else {}
    report: JSON = {
        "outcome": result.outcome,
        "sentence": result.sentence,
        "reason": result.reason if isinstance(result, Failed) else None,
        **evidence,
    }
    if isinstance(result.evidence, CorrectnessEvidence):
        report["max_abs_error"] = result.evidence.max_abs_error
    for timing in report.get("timings", ()):
        timing.update({name: dict(timing[name]) for name in ("detail", "limits", "mix")})
    return report
