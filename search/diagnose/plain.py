"""A public CUDA file, as it is, made into a kernel that the emulator can check.

The file is preprocessed as for the device, the code that the launched kernels need is taken out of
it, and each launch gets assertions that its arguments fit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from greenfast.search.diagnose.argument_assertions import ARGUMENTS, TRAITS, assertion_lines
from greenfast.search.diagnose.brought import LARGEST_FILE_BYTES, BroughtKernel
from greenfast.search.diagnose.check import CheckReport, check_brought
from greenfast.search.diagnose.copied_maps import with_copied_maps
from greenfast.search.diagnose.device_extract import DeviceCode
from greenfast.search.diagnose.entries import ALIAS, Entry, resolved
from greenfast.search.diagnose.launch_attributes import with_attributes
from greenfast.search.diagnose.launch_file import (
    ExpectedOutput,
    LaunchFile,
    check_launch,
    read_launch_file,
)
from greenfast.search.diagnose.plain_argument_text import ArgumentText
from greenfast.search.diagnose.plain_arguments import (
    given_argument,
    ordered,
    read_argument_text,
    suggestion,
)
from greenfast.search.diagnose.plain_messages import refusal
from greenfast.search.diagnose.plain_text import (
    MissingInclude,
    PlainText,
    read_plain_text,
)
from greenfast.search.diagnose.restricted_parameters import with_read_only_parameters
from greenfast.search.errors import UsageError
from greenfast.search.kernels.plain_file import read_plain_file
from greenfast.search.kernels.template_text import Line
from greenfast.search.oracle.cases import Case
from greenfast.search.oracle.problem import (
    GivenArgument,
    LaunchPlan,
    Problem,
    Tensor,
)
from greenfast.search.render import assemble, with_markers
from greenfast.search.targets.base import SourceRefused
from greenfast.search.targets.emulator.target import CannotCompile, EmulatorTarget
from greenfast.search.verdict import SafetyFinding

_GF_INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]gf/', re.MULTILINE)


@dataclass(frozen=True)
class GivenLaunch:
    """A launch on the command line, as it was typed."""

    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    smem_dynamic_bytes: int
    arguments: tuple[str, ...]
    data: tuple[str, ...] = ()  # NAME=INITIALISER


@dataclass(frozen=True)
class PlainOptions:
    defines: tuple[str, ...] = ()
    include_dirs: tuple[Path, ...] = ()
    seed: int = 0
    timeout_s: float | None = None  # of one run's processor time; None: the setting
    words: tuple[str, ...] = ()  # arguments of a program's main
    others: tuple[Path, ...] = ()  # the program's other source files
    input_files: tuple[Path, ...] = ()  # that its main reads


@dataclass(frozen=True)
class PlainKernel:
    """A kernel to check, with the names that its report translates back."""

    brought: BroughtKernel
    entries: tuple[Entry, ...]
    missing: tuple[MissingInclude, ...]


def is_written_for_greenfast(cuda_file: Path) -> bool:
    """Whether the file includes `gf/...`: it then is device code alone and is compiled as it is."""
    try:
        text = read_plain_file(cuda_file, LARGEST_FILE_BYTES).decode("utf-8", "replace")
    except OSError:
        return False
    return _GF_INCLUDE.search(text) is not None


def read_plain(
    cuda_file: Path,
    launch: Path | LaunchFile | GivenLaunch,
    options: PlainOptions,
    target: EmulatorTarget,
) -> PlainKernel:
    """The kernels that `launch` names. Raises SpecError and UsageError in one sentence."""
    file = launch if isinstance(launch, Path) else None
    launches = read_launch_file(file, options.seed) if file else None
    if isinstance(launch, LaunchFile):
        launches = launch
    defines = (*options.defines, *(launches.defines if launches else ()))
    files = (cuda_file, *options.others)
    text = read_plain_text(files, options.include_dirs, defines, target.headers)
    code = DeviceCode(_expanded(text, target))
    if launches is not None:
        name = file.name if file else "the program"
        entries, problem = _of_file(launches, code, name, cuda_file)
    else:
        assert isinstance(launch, GivenLaunch)
        entries, problem = _of_command_line(launch, code, options.seed, cuda_file)
    where = file.name if file else "the program" if launches else "command line"
    problem = with_attributes(problem, entries, code, target.device, where)
    problem = with_copied_maps(problem, entries)
    data = launches.data if launches else _given_data(launch)
    source = assemble(
        _body(code, entries, problem, data),
        [entry.alias for entry in entries],
        (),
        arch_specific=launches.arch_specific if launches else False,
    )
    parameters = {
        entry.alias: [code.unaliased(entry.bound(each)) for each in entry.kernel.parameters]
        for entry in entries
    }
    problem = with_read_only_parameters(problem, parameters)
    expected: tuple[ExpectedOutput, ...] = launches.expected if launches else ()
    return PlainKernel(BroughtKernel(source, problem, expected, text.files), entries, text.missing)


def check_plain(target: EmulatorTarget, plain: PlainKernel, *, is_strict: bool) -> CheckReport:
    """UsageError where the emulator cannot compile the kernels."""
    try:
        report = check_brought(target, plain.brought, is_strict=is_strict)
    except CannotCompile as failed:
        raise refusal(failed.log, plain.missing) from None
    except SourceRefused as refused:
        raise UsageError(str(refused), code="unsupported_source") from None
    return with_entry_names(report, plain.entries)


def with_entry_names(report: CheckReport, entries: Sequence[Entry]) -> CheckReport:
    """The report with the kernels' names as the launches give them."""

    names = {entry.alias: entry.text for entry in entries}

    def named(finding: SafetyFinding) -> SafetyFinding:
        sentence = re.sub(
            rf"\b{ALIAS}\d+\b", lambda word: names.get(word[0], word[0]), finding.sentence
        )
        if finding.kind == "timeout":
            sentence += "; if its loops do end, --timeout SECONDS gives it longer"
        return replace(finding, sentence=sentence)

    return replace(report, findings=tuple(map(named, report.findings)))


def _expanded(text: PlainText, target: EmulatorTarget) -> str:
    unit = with_markers([line for line, _ in text.body], [origin for _, origin in text.body])
    expanded = target.expanded(unit)
    if isinstance(expanded, str):
        return expanded
    log = getattr(expanded, "log", "") or getattr(expanded, "sentence", "")
    raise refusal(str(log), text.missing)


def _of_file(
    launches: LaunchFile, code: DeviceCode, name: str, cuda_file: Path
) -> tuple[tuple[Entry, ...], Problem]:
    entries: dict[str, Entry] = {}
    plans = []
    for plan in launches.problem.launches:
        if plan.entry not in entries:
            alias = f"{ALIAS}{len(entries)}"
            entries[plan.entry] = resolved(plan.entry, code.kernels, alias, cuda_file.name, name)
        plans.append(replace(plan, entry=entries[plan.entry].alias))
    return tuple(entries.values()), replace(launches.problem, launches=tuple(plans))


def _of_command_line(
    launch: GivenLaunch, code: DeviceCode, seed: int, cuda_file: Path
) -> tuple[tuple[Entry, ...], Problem]:
    entry = resolved(launch.entry, code.kernels, f"{ALIAS}0", cuda_file.name)
    parameters = entry.kernel.parameters
    texts = ordered([read_argument_text(text) for text in launch.arguments], parameters)
    needed = [number for number, default in enumerate(entry.kernel.defaults) if not default]
    if len(texts) < len(needed) or (not texts and parameters):
        raise UsageError(
            f"{entry.kernel.name} takes ({', '.join(parameters)}); {len(texts)} --arg are given",
            code="bad_arguments",
            mend=suggestion([code.unaliased(entry.bound(parameter)) for parameter in parameters]),
        )
    texts = (*texts, *_defaulted(entry, len(texts)))
    arguments = tuple(
        given_argument(text, code.unaliased(entry.bound(parameter)), Path(), (seed, number))
        for number, (text, parameter) in enumerate(
            zip(texts, (*parameters, *[""] * len(texts)), strict=False)
        )
    )
    plan = LaunchPlan(
        entry.alias,
        launch.grid,
        launch.block,
        launch.smem_dynamic_bytes,
        arguments,
        launch.cluster,
    )
    check_launch(plan, "command line")
    return (entry,), _problem(arguments, plan, seed)


def _defaulted(entry: Entry, given: int) -> list[ArgumentText]:
    """The parameters after the given ones take their default values."""
    texts = []
    pairs = list(zip(entry.kernel.parameters, entry.kernel.defaults, strict=True))
    for parameter, default in pairs[given:]:
        value = default.rstrip("fFlLuU") if default[:1].isdigit() else default
        value = "null" if value == "nullptr" or ("*" in parameter and value == "0") else value
        texts.append(ArgumentText(f"{parameter} = {default}", "default", "", None, value, ""))
    return texts


def _problem(arguments: tuple[GivenArgument, ...], plan: LaunchPlan, seed: int) -> Problem:
    tensors: dict[str, Tensor] = {}
    for argument in arguments:
        if isinstance(argument, Tensor):
            if argument.name in tensors:
                raise UsageError(
                    f"two --arg have the name {argument.name!r}", code="bad_command_line"
                )
            tensors[argument.name] = argument
    case = Case("launch", (), (), "", "contiguous", seed, ())
    return Problem(case, tuple(tensors.values()), (), arguments, (plan,), 0.0, 0.0)


def _given_data(launch: Path | LaunchFile | GivenLaunch) -> Mapping[str, str]:
    data = {}
    for text in launch.data if isinstance(launch, GivenLaunch) else ():
        name, equals, value = text.partition("=")
        if not equals or not re.fullmatch(r"\s*[A-Za-z_]\w*\s*", name) or not value.strip():
            raise UsageError(
                f"--data {text!r} cannot be read",
                code="bad_command_line",
                mend="--data NAME=VALUE, where VALUE is a C++ initialiser: {1, 2, 3}",
            )
        data[name.strip()] = value.strip()
    return data


def _body(
    code: DeviceCode, entries: Sequence[Entry], problem: Problem, data: Mapping[str, str]
) -> list[tuple[str, Line]]:
    mentioned = {name for entry in entries for name in re.findall(r"\w+", entry.text)}
    kept = code.needed([entry.kernel for entry in entries], mentioned | set(data))
    body = list(code.lines(kept, data))
    extra = [*TRAITS.strip().splitlines(), *(entry.definition for entry in entries)]
    by_alias = {entry.alias: entry for entry in entries}
    for plan in problem.launches:
        extra += assertion_lines(by_alias[plan.entry], plan.arguments or ())
    return body + [(text, Line(ARGUMENTS, number)) for number, text in enumerate(extra, 1)]
