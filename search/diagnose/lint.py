"""Everything about a kernel's files that can be checked without running a candidate.

The checks go from cheap to dear: the files, names that nothing uses, every preset and a sample of
points rendered, the reference called at small sizes and judged, and the entries' parameter lists.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from greenfast.search.children import Children
from greenfast.search.devices.facts import Device
from greenfast.search.errors import Fault, GreenfastError, SpecError, UsageError
from greenfast.search.kernels.expressions import SM_COUNT, Expression, Value
from greenfast.search.kernels.kernel_file import load_kernel
from greenfast.search.kernels.mistakes import SpecErrors
from greenfast.search.kernels.places import located
from greenfast.search.kernels.probe_spec import probe_mistakes
from greenfast.search.kernels.spec import KernelSpec, TemplateSpec
from greenfast.search.kernels.workloads import Items, unwritable_values
from greenfast.search.oracle.cases import derived_cases
from greenfast.search.oracle.problem import check_arguments, launches
from greenfast.search.oracle.reference_lint import reference_children, reference_faults
from greenfast.search.oracle.storage import DTYPES
from greenfast.search.render import RenderedSource, RenderFailed, render
from greenfast.search.space.candidate import Candidate, Origin, OriginKind, preset_candidate
from greenfast.search.space.space import Space, resolve
from greenfast.search.text import file_line
from greenfast.search.toolchain import CompileFailed, Toolchain
from greenfast.search.toolchain.signature import passed_arguments, signature_fault

SAMPLED_POINTS = 8  # of each template and compile-time choice, beside the presets
POINTS_WITH_TILES = 64  # of which the smallest tiles are taken, for the reference
MOST_CHOICES = 4  # of compile-time values, beside those that a preset needs
MOST_COMPILED = 6  # candidates of each template
SEED = 0
_PLACE = re.compile(r"(?P<file>[\w./-]+\.(?:toml|py|j2))(?::(?P<line>\d+))?")
_WORD = re.compile(r"[A-Za-z_]\w*")
_COMPILER_LINE = re.compile(r"(?P<file>[\w./-]+\.j2)\((?P<line>\d+)\): (?P<message>.*)", re.DOTALL)
_FILLED = re.compile(r"\{(\w+)\}")  # in an author's sentence
_COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)


WITH_PARAMETERS = " (with "  # between a problem and the candidate that shows it


@dataclass(frozen=True)
class Problem:
    """One thing to correct; `line` is 0 if none is known."""

    file: str
    line: int
    code: str
    message: str
    mend: str = ""

    @property
    def sentence(self) -> str:
        return f"{self.message} ({self.mend})" if self.mend else self.message


def problem_of(error: GreenfastError) -> Problem:
    place = _PLACE.match(error.message)
    file, line = (place["file"], int(place["line"] or 0)) if place else ("", 0)
    return Problem(file, line, error.code, error.message, error.mend)


def lint_kernel(
    folder: Path,
    include_dirs: tuple[Path, ...],
    device: Device,
    toolchain: Toolchain | None,
) -> tuple[Problem, ...]:
    """All problems of the kernel in `folder`; without a toolchain signatures are not compared."""
    try:
        kernel = load_kernel(folder)
    except SpecErrors as errors:
        return tuple(map(problem_of, errors.mistakes))
    except SpecError as error:
        return (problem_of(error),)
    problems = [
        problem_of(SpecError(sentence, code="bad_workload"))
        for _, sentence in kernel.broken_workloads
    ]
    problems += _workload_problems(kernel)
    mistakes = (
        *probe_mistakes(kernel.name, kernel.probes, kernel.reference_text),
        *unwritable_values(kernel.name, kernel.options),
    )
    problems += (problem_of(located(each, folder)) for each in mistakes)
    problems += _unused(kernel)
    problems += _unknown_in_sentences(kernel)
    problems += _unsupported(kernel)
    for template in kernel.templates:
        problems += _template_problems(kernel, template, include_dirs, device, toolchain)
    problems += _reference_problems(kernel, device)
    return tuple(dict.fromkeys(problems))


def _workload_problems(kernel: KernelSpec) -> Iterator[Problem]:
    """Named workloads that values of the same sizes would not be accepted as."""
    file = f"{kernel.name}/kernel.toml"
    if not kernel.workloads:
        yield Problem(file, 0, "no_workloads", f"{file}: there is no [workloads.NAME] to time")
    if not kernel.checks:
        yield Problem(
            file,
            0,
            "no_checks",
            f"{file}: there are no [[checks]], so only the workloads are compared with the "
            "reference",
        )
    for workload in kernel.workloads:
        where = f"{file}, [workloads.{workload.name}]"
        try:
            kernel.workload_form.workload(dict((*workload.dims, *workload.options)), where=where)
            values = kernel.values_of(dict(workload.dims), dict(workload.options))
            kernel.work_flop.amount(values)
            check_arguments(kernel, values)
            work_bytes, most = (
                float(kernel.work_bytes.amount(values)),
                _tensor_bytes(kernel, values),
            )
        except GreenfastError as error:
            mend = error.mend if isinstance(error, SpecError) else ""  # the form's is its names
            said = SpecError(error.message, code=error.code, mend=mend)
            yield problem_of(located(said, kernel.folder))
            continue
        if work_bytes > most:
            yield Problem(
                file,
                0,
                "work_bytes",
                f"{file}, [work], bytes: {work_bytes:,.0f} bytes on workload {workload.name}, and "
                f"all tensors together have {most:,}",
                "count what must be read and written, once; with too many bytes, fast candidates "
                "are rejected as implausible",
            )


def _tensor_bytes(kernel: KernelSpec, values: Mapping[str, Value]) -> int:
    return sum(
        math.prod(int(values[name]) for name in argument.shape)
        * DTYPES[str(values.get(argument.dtype, argument.dtype))].itemsize
        for argument in kernel.arguments
        if argument.kind != "scalar"
    )


def _choices(kernel: KernelSpec, template: TemplateSpec) -> tuple[Items, ...]:
    """Compile-time values of workloads that the template supports."""
    choices = []
    for workload in kernel.workloads:
        try:
            template.check_supports(workload)
        except UsageError:
            continue
        choices.append(workload.compile_time(kernel))
    return tuple(dict.fromkeys(choices))


# ---- names that nothing uses ----


def _unused(kernel: KernelSpec) -> Iterator[Problem]:
    for template in kernel.templates:
        file = f"{kernel.name}/{template.name}.toml"
        text_names = set(_WORD.findall(_COMMENT.sub("", template.text)))
        expressions = list(_expressions(template))
        for parameter in template.parameters:
            used = {name for table, each in expressions for name in each.names if table}
            if parameter.name not in used | text_names:
                yield _unused_problem(kernel, file, "parameters", parameter.name)
        for name, _ in template.locals:
            used = {used for table, each in expressions for used in each.names if table != name}
            if name not in used | text_names:
                yield _unused_problem(kernel, file, "locals", name)
        probed = [each for probe in template.probes for _, each in probe.values]
        sizes = _names_beside_templates(kernel) | {name for each in probed for name in each.names}
        for name, _ in template.tiles:
            if name not in sizes:
                yield _unused_problem(kernel, file, "tiles", name)
    shapes = {name for argument in kernel.arguments for name in argument.shape}
    scalars = {
        name
        for argument in kernel.arguments
        if argument.value is not None
        for name in argument.value.names
    }
    texts = set(_WORD.findall("\n".join(template.text for template in kernel.templates)))
    for dim in kernel.dims:
        if dim.name not in shapes | scalars | texts:
            yield _unused_problem(kernel, f"{kernel.name}/kernel.toml", "dims", dim.name)


def _unknown_in_sentences(kernel: KernelSpec) -> Iterator[Problem]:
    """Names in braces that no value takes the place of, in the `because` of a constraint."""
    compiled = {option.name for option in kernel.options} | {SM_COUNT}
    compiled |= {dim.name for dim in kernel.dims if dim.time == "compile"}
    for template in kernel.templates:
        known = compiled | {parameter.name for parameter in template.parameters}
        known |= {name for name, _ in template.locals}
        for number, constraint in enumerate(template.constraints, 1):
            for name in sorted(set(_FILLED.findall(constraint.because)) - known):
                error = SpecError(
                    f"{kernel.name}/{template.name}.toml, [[constraints]] {number}, because: "
                    f"{{{name}}} is no value of a candidate",
                    code="unknown_name",
                    mend="known: " + ", ".join(sorted(known)),
                )
                yield problem_of(located(error, kernel.folder))


def _unsupported(kernel: KernelSpec) -> Iterator[Problem]:
    """Values that `supports` lists and that the kernel's option does not have."""
    options = {option.name: option.values for option in kernel.options}
    for template in kernel.templates:
        for name, values in template.supports:
            for value in values:
                if name in options and value not in options[name]:
                    error = SpecError(
                        f"{kernel.name}/{template.name}.toml, [supports], {name}: {value!r} is no "
                        "value of the option in kernel.toml",
                        code="bad_spec",
                        mend="known: " + ", ".join(options[name]),
                    )
                    yield problem_of(located(error, kernel.folder))


def _names_beside_templates(kernel: KernelSpec) -> set[str]:
    """Every word of kernel.toml and of the Python files beside it."""
    files = (kernel.folder / "kernel.toml", *kernel.folder.glob("*.py"))
    return {name for file in files for name in _WORD.findall(file.read_text("utf-8"))}


def _expressions(template: TemplateSpec) -> Iterator[tuple[str, Expression]]:
    """Every expression of a template with the local that it defines, or another word."""
    yield from template.locals
    yield from (("constraints", constraint.expression) for constraint in template.constraints)
    yield from (("tiles", tile) for _, tile in template.tiles)
    yield from (
        ("parameters", parameter.when)
        for parameter in template.parameters
        if parameter.when is not None
    )
    for launch in template.launches:
        sizes = (*launch.grid, *launch.block, *launch.cluster, launch.smem_dynamic_bytes)
        yield from (("launches", size) for size in sizes)
        if launch.when is not None:
            yield "launches", launch.when
    for tensor_map in template.tensor_maps:
        numbers = (tensor_map.swizzle_bytes, tensor_map.l2_promotion_bytes, tensor_map.when)
        lengths = (*tensor_map.sizes, *tensor_map.strides, *tensor_map.box)
        yield from (("tensor_maps", each) for each in (*lengths, *numbers) if each is not None)
    for workspace in template.workspaces:
        yield "workspaces", workspace.bytes
        if workspace.when is not None:
            yield "workspaces", workspace.when


def _unused_problem(kernel: KernelSpec, file: str, table: str, name: str) -> Problem:
    kind = table.removesuffix("s")
    key = f"[{table}.{name}]" if table == "parameters" else f"[{table}] {name}"
    uses = {
        "parameters": "the text, a constraint or a launch",
        "locals": "the text or an expression",
        "tiles": "a check's sizes, a probe or reference.py",
        "dims": "a shape, a scalar's value or a template",
    }[table]
    return problem_of(
        located(
            SpecError(
                f"{file}, {key}: the {kind} {name} is not used in {uses}",
                code=f"unused_{kind}",
                mend="use it or remove it",
            ),
            kernel.folder,
        )
    )


# ---- rendering and launches ----


def _template_problems(
    kernel: KernelSpec,
    template: TemplateSpec,
    include_dirs: tuple[Path, ...],
    device: Device,
    toolchain: Toolchain | None,
) -> list[Problem]:
    file = f"{kernel.name}/{template.name}.toml"
    problems: list[Problem] = []
    reasons: dict[str, str | None] = {}  # by preset: why it is impossible; None: it is possible
    for number, compiled in enumerate(_choices(kernel, template)):
        try:
            space = Space(template, compiled, device)
            candidates = _candidates(space, reasons, with_sample=number < MOST_CHOICES)
        except SpecError as error:
            problems.append(problem_of(located(error, kernel.folder)))
            continue
        if not candidates and number < MOST_CHOICES:
            shown = ", ".join(f"{name}={value}" for name, value in compiled)
            problems.append(
                Problem(
                    file,
                    0,
                    "empty_space",
                    f"{file}: no parameter values satisfy the constraints on {device.name}"
                    + (f" for {shown}" if shown else ""),
                )
            )
        to_compile = _every_value(candidates)[: 1 if number else MOST_COMPILED]
        for candidate in candidates:
            compiler = toolchain if candidate in to_compile else None
            problem = _candidate_problem(
                kernel, template, candidate, compiled, include_dirs, device, compiler
            )
            if problem is not None:
                problems.append(problem)
    problems = _told_once(problems)
    if device.sm >= template.minimum_sm:
        problems += (
            _impossible_preset(kernel, file, preset, reason)
            for preset, reason in reasons.items()
            if reason is not None
        )
    return problems


def _every_value(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The first candidate, then those that add most values of parameters: few show them all."""
    left, chosen = list(candidates), list[Candidate]()
    seen: set[tuple[str, Value]] = set()
    while left:
        best = max(left, key=lambda each: len(set(each.parameters) - seen)) if chosen else left[0]
        if chosen and not set(best.parameters) - seen:
            break
        chosen.append(best)
        seen |= set(best.parameters)
        left.remove(best)
    return chosen


def _told_once(problems: Iterable[Problem]) -> list[Problem]:
    """The problems without those that further candidates repeat."""
    first: dict[tuple[str, int, str, str], Problem] = {}
    for problem in problems:
        message = problem.message.rpartition(WITH_PARAMETERS)[0] or problem.message
        first.setdefault((problem.file, problem.line, problem.code, message), problem)
    return list(first.values())


def _impossible_preset(kernel: KernelSpec, file: str, preset: str, reason: str) -> Problem:
    sentence = f"{file}, [presets.{preset}]: the preset is not possible for any workload: {reason}"
    return problem_of(located(SpecError(sentence, code="impossible_preset"), kernel.folder))


def _candidates(
    space: Space, reasons: dict[str, str | None], *, with_sample: bool
) -> list[Candidate]:
    """The possible presets and a drawn sample of points; `reasons` learns of the presets.

    Without a sample only presets that were not possible before.
    """
    template, candidates = space.template, []
    for preset in template.presets:
        if not with_sample and reasons.get(preset.name, "") is None:
            continue
        candidate = preset_candidate(template, preset.name, space.compiled)
        reason = space.why_not(candidate.parameters)
        if reason is None:
            reasons[preset.name] = None
            candidates.append(candidate)
        else:
            reasons.setdefault(preset.name, reason)
    candidates += (
        Candidate(template.kernel, template.name, point, Origin(OriginKind.SAMPLED))
        for point in (space.sample(SAMPLED_POINTS, SEED) if with_sample else ())
    )
    return list({candidate.parameters: candidate for candidate in candidates}.values())


def _candidate_problem(
    kernel: KernelSpec,
    template: TemplateSpec,
    candidate: Candidate,
    compiled: Items,
    include_dirs: tuple[Path, ...],
    device: Device,
    toolchain: Toolchain | None,
) -> Problem | None:
    shown = ", ".join(f"{name}={value}" for name, value in candidate.parameters)
    text_file = f"{kernel.name}/{template.name}.cu.j2"
    try:
        point = resolve(template, candidate.parameters, compiled, device)
        for workload in kernel.workloads:
            if workload.compile_time(kernel) == compiled:
                values = kernel.values_of(dict(workload.dims), dict(workload.options))
                launches(template, {**values, **point.values})
        source = render(kernel, template, point, include_dirs)
        if isinstance(source, RenderFailed):
            file, line = (source.line.file, source.line.number) if source.line else (text_file, 0)
            place = file_line(file, line) if line else file
            return Problem(
                file, line, "render_error", f"{place}: {source.message}{WITH_PARAMETERS}{shown})"
            )
        return _signature_problem(kernel, template, source, point.values, device, toolchain)
    except SpecError as error:
        return problem_of(located(error, kernel.folder))


def _signature_problem(
    kernel: KernelSpec,
    template: TemplateSpec,
    source: RenderedSource,
    values: Mapping[str, Value],
    device: Device,
    toolchain: Toolchain | None,
) -> Problem | None:
    if toolchain is None:
        return None
    text_file = f"{kernel.name}/{template.name}.cu.j2"
    arch = device.compiled_arch(specific=source.arch_specific)
    compiled = toolchain.compile(source, arch)
    if isinstance(compiled, CompileFailed):
        if said := _COMPILER_LINE.match(compiled.sentence):
            place = file_line(said["file"], int(said["line"]))
            sentence = f"{place}: {said['message']}"
            return Problem(said["file"], int(said["line"]), "compile_error", sentence)
        return Problem(text_file, 0, "compile_error", f"{text_file}: {compiled.sentence}")
    passed = passed_arguments(kernel, template, dict(values), False)
    fault = signature_fault(source.entries, passed, compiled.ptx, template.name)
    return Problem(text_file, 0, "signature", f"{text_file}: {fault}") if fault else None


# ---- the reference ----


def _reference_problems(kernel: KernelSpec, device: Device) -> list[Problem]:
    """The reference at the checks' sizes for the smallest tiles, for each compile-time choice."""
    problems: list[Problem] = []
    children = reference_children(MOST_CHOICES)
    try:
        for template in kernel.templates[:1]:
            for compiled in _choices(kernel, template)[:MOST_CHOICES]:
                try:
                    problems += _problems_of_a_choice(kernel, template, compiled, device, children)
                except SpecError as error:
                    problems.append(problem_of(located(error, kernel.folder)))
    finally:
        children.close()
    return problems


def _problems_of_a_choice(
    kernel: KernelSpec,
    template: TemplateSpec,
    compiled: Items,
    device: Device,
    children: Children,
) -> list[Problem]:
    points = Space(template, compiled, device).sample(POINTS_WITH_TILES, SEED)
    if not points:
        return []
    tiles = min(
        (resolve(template, point, compiled, device).tiles for point in points),
        key=lambda tiles: tuple(tiles.values()),
    )
    cases = derived_cases(kernel, compiled, tiles, SEED)
    for case in cases:
        check_arguments(kernel, case.values(kernel))
    return [
        problem_of(located(SpecError(sentence, code=code), kernel.folder))
        for code, sentence in reference_faults(
            kernel, cases, f"{kernel.name}/reference.py", children
        )
    ]


def usable_toolchain(open_toolchain: Callable[[], Toolchain]) -> Toolchain | None:
    """The toolchain, where this machine has one."""
    try:
        toolchain = open_toolchain()
        _ = toolchain.identity
    except Fault:
        return None
    return toolchain


def sorted_problems(problems: Iterable[Problem]) -> Sequence[Problem]:
    """By file and line, in the order in which an author goes through them."""
    return sorted(problems, key=lambda problem: (problem.file, problem.line))
