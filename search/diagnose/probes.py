"""Finds the stage in which a kernel goes wrong: a probe shows each stage to its reference.

A probe is the candidate rendered once more (`probe = "softmax"`): same text, tiles and launch, and
one more argument, which receives the stage's result. The candidate itself is compared last, as the
stage `output`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from greenfast.search.diagnose.probe_patterns import pattern
from greenfast.search.errors import SpecError, unknown_name
from greenfast.search.gates.base import Subject
from greenfast.search.gates.correctness import compare as compare_output
from greenfast.search.kernels.expressions import Value
from greenfast.search.kernels.probe_spec import ProbeSpec
from greenfast.search.kernels.spec import KernelSpec, tile_names
from greenfast.search.loop.evaluate import EvaluationContext, prepare
from greenfast.search.oracle.cases import Case, derived_cases
from greenfast.search.oracle.problem import POISON, Problem, Tensor, lay_out
from greenfast.search.oracle.reference import kernel_module
from greenfast.search.space.candidate import Candidate
from greenfast.search.space.space import resolve
from greenfast.search.targets.base import Execution
from greenfast.search.text import written
from greenfast.search.verdict import Rejected

OUTPUT = "output"
BETWEEN = (
    "what lies between the stages, since each is correct by itself: what one tile leaves to the "
    "next, the ring of tiles, parts that are brought together, the end"
)
AT_ONCE = 4  # sources compiled at the same time


@dataclass(frozen=True)
class ProbedCase:
    """One run of one probe. Indices are of the compared array, whose axes the probe names."""

    case: str
    shape: str
    seed: int
    order: str
    compared: int  # elements
    wrong: int
    max_abs_error: float | None  # None: nothing to compare, or not finite
    worst_index: tuple[int, ...]  # the element furthest beyond its bound; empty when all are within
    worst_value: str
    worst_expected: str
    worst_bound: str
    where: str  # a description of the wrong elements


@dataclass(frozen=True)
class ProbeReport:
    """The result of one stage.

    `missing`: the template has no such probe for these parameters; `failed`: no result came.
    """

    probe: str
    outcome: str  # "right" | "wrong" | "missing" | "failed"
    sentence: str
    bound: str
    suspect: str
    cases: tuple[ProbedCase, ...] = ()


def first_wrong(reports: Sequence[ProbeReport]) -> ProbeReport | None:
    """The first wrong stage; later stages compute from its result."""
    return next((report for report in reports if report.outcome in ("wrong", "failed")), None)


def probe_command(
    kernel: KernelSpec,
    template: str,
    parameters: Mapping[str, Value],
    workload: str,
    target: str,
    case: str = "",
) -> str:
    """The command that shows where a candidate goes wrong; empty for a template without probes.

    `case` is the check or workload that failed; probes do not run workloads.
    """
    spec = kernel.template(template)
    if not spec.probes:
        return ""
    words = ["greenfast probe", kernel.name, "--template", template]
    words += [
        f"--set {parameter.name}={written(parameters[parameter.name])}"
        for parameter in spec.parameters
        if parameters[parameter.name] != parameter.default
    ]
    words += ["--workload", workload, "--target", target]
    compared = {check.name for check in kernel.checks if check.seeds}
    words += ["--case", case] if case in compared else []
    return " ".join(words)


def probe_candidate(
    context: EvaluationContext, candidate: Candidate, case_names: Sequence[str] = ()
) -> tuple[ProbeReport, ...]:
    """Probe every stage of `candidate`, in order.

    Runs on the kernel's probe cases, or on all seeds of the named ones. UsageError: an unknown
    case, or a kernel without probes.
    """
    template = context.kernel.template(candidate.template)
    point = resolve(template, candidate.parameters, context.compiled, context.target.device)
    cases = _cases(context, point.tiles, case_names)
    context.target.prepare()
    stages: list[ProbeSpec | None] = [*context.kernel.probes, None]
    having = {
        probe.name for probe in template.probes if probe.when is None or probe.when(point.values)
    }

    def work(stage: ProbeSpec | None) -> ProbeReport:
        if stage is not None and stage.name not in having:
            return _report(
                stage, "missing", f"template {template.name} has no such probe for these parameters"
            )
        return _stage(context, candidate, stage, cases)

    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        reports = tuple(pool.map(work, stages))
    except BaseException:
        context.target.interrupt()  # Ctrl-C does not wait for running probes
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    output = reports[-1]
    if output.outcome == "wrong" and all(report.outcome == "right" for report in reports[:-1]):
        return (*reports[:-1], replace(output, suspect=BETWEEN))
    return reports


def _cases(
    context: EvaluationContext, tiles: Mapping[str, int], names: Sequence[str]
) -> tuple[Case, ...]:
    cases = derived_cases(context.kernel, context.compiled, tiles, context.seed)
    known = {case.name for case in cases}
    for name in names:
        if name not in known:
            raise unknown_name("case", name, known, where=f"kernel {context.kernel.name}")
    selected = names or context.kernel.probe_cases
    first: dict[str, Case] = {}
    for case in cases:
        first.setdefault(case.name, case)
    return (
        tuple(case for case in cases if case.name in selected)
        if names
        else tuple(first[name] for name in selected if name in first)
    )


def _stage(
    context: EvaluationContext, candidate: Candidate, stage: ProbeSpec | None, on: Sequence[Case]
) -> ProbeReport:
    """Render, compile, run and compare one stage; None: the candidate without a probe."""
    probe = stage.name if stage else ""
    with_cubin = context.target.measures  # no other target runs cubins
    subject = prepare(candidate, context, probe=probe, with_cubin=with_cubin)
    if isinstance(subject, Rejected):
        return _report(stage, "failed", subject.sentence)
    probed: list[ProbedCase] = []
    for execution in subject.target.execute(
        subject.program, [_problem(subject, stage, case) for case in on]
    ):
        if execution.failure is not None:
            case = execution.problem.case
            return _report(stage, "failed", f"{case.name}: {execution.failure.sentence}", probed)
        probed.append(
            _compare(subject, stage, execution) if stage else _output_case(subject, execution)
        )
    worst = max(
        (result for result in probed if result.wrong),
        key=lambda result: result.compared,
        default=None,
    )
    if worst is None:
        return _report(
            stage,
            "right",
            f"{sum(result.compared for result in probed)} elements within the bound",
            probed,
        )
    cases = sum(bool(result.wrong) for result in probed)
    return _report(
        stage,
        "wrong",
        f"{worst.where}: wrong ({worst.wrong} of {worst.compared} elements of {worst.case}, "
        f"{cases} of {len(probed)} cases)",
        probed,
    )


def _report(
    stage: ProbeSpec | None, outcome: str, sentence: str, cases: Sequence[ProbedCase] = ()
) -> ProbeReport:
    if stage is None:
        return ProbeReport(OUTPUT, outcome, sentence, "those of the outputs", "", tuple(cases))
    return ProbeReport(stage.name, outcome, sentence, stage.bound, stage.suspect, tuple(cases))


def _values(subject: Subject, stage: ProbeSpec, case: Case) -> dict[str, Value]:
    """The values for the probe's expressions; a template may override the probe's own."""
    values = {**case.values(subject.kernel), **subject.point.values, **_tiles(subject, case)}
    given = next(
        (dict(probe.values) for probe in subject.template.probes if probe.name == stage.name), {}
    )
    return {**values, **{name: given.get(name, default)(values) for name, default in stage.values}}


def _tiles(subject: Subject, case: Case) -> dict[str, int]:
    """Tile sizes by every tile name of the kernel; 1 where this template has no such tile."""
    return {**dict.fromkeys(tile_names(subject.kernel.templates), 1), **dict(case.tiles)}


def _problem(subject: Subject, stage: ProbeSpec | None, case: Case) -> Problem:
    """The case laid out, with the probe's output as the last argument."""
    data = subject.target.case_data(subject.kernel, case)
    laid_out = lay_out(subject.kernel, subject.template, subject.point, case, data)
    if stage is None or not stage.writes:
        return laid_out
    values = _values(subject, stage, case)
    shape = tuple(int(size(values)) for size in stage.shape)
    strides = tuple(int(np.prod(shape[axis + 1 :], dtype=np.int64)) for axis in range(len(shape)))
    image = np.full(max(int(np.prod(shape, dtype=np.int64)), 1) * 4, POISON, np.uint8)
    image.flags.writeable = False
    tensor = Tensor("probe_out", "output", np.dtype(np.float32), shape, strides, image)
    return replace(
        laid_out, tensors=(*laid_out.tensors, tensor), arguments=(*laid_out.arguments, tensor)
    )


def _compare(subject: Subject, stage: ProbeSpec, execution: Execution) -> ProbedCase:
    """Compare the output of the stage with its reference."""
    case, name = execution.problem.case, stage.of or "probe_out"
    tensor = next(output for output in execution.problem.tensors if output.name == name)
    values = _values(subject, stage, case)
    module = kernel_module(subject.kernel)
    where = f"{subject.kernel.name}/reference.py, {stage.reference}"
    if not callable(getattr(module, stage.reference, None)):
        raise SpecError(f"{where}: there is no such function", code="reference_failed")
    own = {tile: values[tile] for tile in (*_tiles(subject, case), *dict(stage.values))}
    inputs = subject.target.case_data(subject.kernel, case).inputs
    written = _written(tensor, execution.outputs[tensor.name])
    try:
        reply = getattr(module, stage.reference)(
            dict(case.dims), dict(case.options), inputs, own, written
        )
    except Exception as error:  # the author's code can raise anything
        sentence = f"{where}: case {case.name}: {type(error).__name__}: {error}"
        raise SpecError(sentence, code="reference_failed") from error
    got, value, bound = reply.get("got", written), reply["value"], reply["bound"]
    compared = reply.get("compared", np.ones(value.shape, bool))
    if not got.shape == value.shape == bound.shape == compared.shape:
        raise SpecError(f"{where}: its arrays have different shapes", code="reference_failed")
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.abs(got - value)
        difference[got == value] = 0.0  # equal infinities are correct
        wrong = compared & ~(difference <= bound)  # NaN is never within
    tiles = {axis: int(size(values)) for axis, size in stage.tiles}
    warp_rows = int(subject.template.warp_rows(values)) if subject.template.warp_rows else 0
    return _probed(
        execution,
        compared,
        wrong,
        difference,
        (got, value, bound),
        lambda: _where(stage, wrong, compared, got, tiles, warp_rows),
    )


def _where(
    stage: ProbeSpec,
    wrong: np.ndarray,
    compared: np.ndarray,
    got: np.ndarray,
    tiles: Mapping[str, int],
    warp_rows: int,
) -> str:
    words = pattern(wrong, compared, stage.axes, tiles, dict(stage.labels), warp_rows)
    return words + (", never written" if np.isnan(got[wrong]).all() else "")


def _written(tensor: Tensor, image: np.ndarray) -> np.ndarray:
    """The output as float64: NaN where nothing was written, infinity for a written NaN."""
    values = np.ascontiguousarray(tensor.view(image))
    width = tensor.dtype.itemsize
    unwritten = values.view(f"u{width}") == int.from_bytes(bytes([POISON]) * width)
    numbers = values.astype(np.float64)
    numbers[np.isnan(numbers) & ~unwritten] = np.inf
    return numbers


def _probed(
    execution: Execution,
    compared: np.ndarray,
    wrong: np.ndarray,
    error: np.ndarray,
    arrays: tuple[np.ndarray, np.ndarray, np.ndarray],
    where: Callable[[], str],
) -> ProbedCase:
    """`arrays`: the written values, the expected values and the bounds."""
    largest = float(error[compared].max()) if compared.any() else 0.0
    case = ProbedCase(
        execution.problem.case.name,
        _shape(execution.problem.case),
        execution.problem.case.seed,
        execution.order,
        int(compared.sum()),
        int(wrong.sum()),
        largest if np.isfinite(largest) else None,
        (),
        "",
        "",
        "",
        "",
    )
    if not wrong.any():
        return case
    beyond = np.where(np.isnan(error), np.inf, error) / np.maximum(arrays[2], 1e-300)
    worst = tuple(
        int(position)
        for position in np.unravel_index(np.where(wrong, beyond, -1.0).argmax(), wrong.shape)
    )
    got, expected, bound = (f"{array[worst]:.6g}" for array in arrays)
    return replace(
        case,
        worst_index=worst,
        worst_value=got,
        worst_expected=expected,
        worst_bound=bound,
        where=where(),
    )


def _output_case(subject: Subject, execution: Execution) -> ProbedCase:
    """The candidate's own outputs, as the correctness gate sees them."""
    case = execution.problem.case
    checks, reason = compare_output(subject, execution)
    outputs = subject.target.case_data(subject.kernel, case).outputs
    wrong = round(
        sum(outputs[each.output].value.size * (each.share_out_of_bound or 0.0) for each in checks)
    )
    first = next((check for check in checks if not check.passed), None)
    compared = sum(expected.value.size for expected in outputs.values())
    probed = ProbedCase(
        case.name,
        _shape(case),
        case.seed,
        execution.order,
        compared,
        0,
        checks[0].max_abs_error,
        (),
        "",
        "",
        "",
        "",
    )
    if reason is None or first is None:
        return probed
    return replace(
        probed,
        wrong=max(wrong, 1),
        max_abs_error=first.max_abs_error,
        worst_index=first.worst_index,
        worst_value=first.worst_value,
        worst_expected=first.worst_expected,
        where=first.output,
    )


def _shape(case: Case) -> str:
    return " ".join(f"{name}={size}" for name, size in case.dims)
