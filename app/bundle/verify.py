"""`greenfast verify`: compile a bundle here, check it on new seeds, time it on the same GPU model.

Of a bundle is run, and decides how it is judged, only what this installation knows or the caller
trusts (verify_trust.py).
"""

from __future__ import annotations

import math
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from greenfast.app.bundle.machine_code import as_text, compared_code
from greenfast.app.bundle.opened import OpenedBundle, kernel_of, open_bundle
from greenfast.app.bundle.verify_baseline import doubtful_baseline
from greenfast.app.bundle.verify_launch import wrong_launch
from greenfast.app.bundle.verify_programs import changed_programs
from greenfast.app.bundle.verify_trust import foreign_files, judged_kernel
from greenfast.app.wiring import Services
from greenfast.runtime.archive import MALFORMED, bad_bundle
from greenfast.search.acceptance import weights_of
from greenfast.search.errors import UsageError
from greenfast.search.gates import GateLimits, Subject
from greenfast.search.gates.correctness import CorrectnessGate
from greenfast.search.gates.safety import SafetyGate
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.loop.confirmation import BASELINE, timed_in_turns
from greenfast.search.loop.evaluate import EvaluationContext, prepare
from greenfast.search.loop.plan import DEFAULT_TARGET, LARGEST_SECRET
from greenfast.search.oracle.cases import LARGEST_SEED
from greenfast.search.render import RenderedSource
from greenfast.search.space.candidate import Candidate, Origin, OriginKind, complete_parameters
from greenfast.search.targets import check_target_name
from greenfast.search.targets.base import Failure
from greenfast.search.targets.cuda import gpu_count
from greenfast.search.text import shortened
from greenfast.search.timing import (
    NOISY_HALF_WIDTH,
    block_log_ratios,
    combined,
    mean_of_processes,
    median_interval,
)
from greenfast.search.verdict import Failed, GateResult, Passed, Rejected, TimeKind, Timing

PROCESSES = 3
LONGEST_NAMES = 200  # of changed programs in a sentence


class Finding(StrEnum):
    AGREES = "agrees"
    DISAGREES = "disagrees"
    CANNOT_TELL = "cannot_tell"
    NOT_RECHECKED = "not_rechecked"  # not possible here; does not change the overall finding


@dataclass(frozen=True)
class Item:
    """One claim of a bundle, and the result of rechecking it."""

    name: str  # files, compile, baseline, correctness, safety, time
    finding: Finding
    sentence: str


@dataclass(frozen=True)
class Report:
    bundle: str
    kernel: str
    template: str
    target: str
    seed: int
    items: tuple[Item, ...]

    @property
    def finding(self) -> Finding:
        findings = [item.finding for item in self.items]
        if Finding.DISAGREES in findings:
            return Finding.DISAGREES
        return Finding.CANNOT_TELL if Finding.CANNOT_TELL in findings else Finding.AGREES


def verify_bundle(
    services: Services,
    path: Path,
    target_name: str | None = None,
    *,
    trust: bool = False,
    seed: int | None = None,
) -> Report:
    """Recheck the bundle at `path`, by default on a GPU if there is one.

    UsageError `bad_bundle`, `untrusted_bundle`, or `cannot_verify` for a target that runs nothing.
    """
    bundle = open_bundle(path)
    name = target_to_verify(target_name)
    rendered = check_target_name(name)[0] == "emulator"
    catalogue = vouching_catalogue(services, bundle, rendered=rendered, trust=trust)
    seed = secrets.randbelow(LARGEST_SEED) if seed is None else seed
    items = [Item("files", Finding.AGREES, f"all {len(bundle.files)} files match SHA256SUMS")]
    with tempfile.TemporaryDirectory(prefix="greenfast-verify-") as folder:
        kernel = judged_kernel((services.catalogue, catalogue), kernel_of(bundle, Path(folder)))
        items.append(programs_item(changed_programs(bundle, kernel)))
        items += rechecked(services, bundle, kernel, name, catalogue, seed, trust=trust)
    return Report(path.name, kernel.name, str(bundle.launch["template"]), name, seed, tuple(items))


def target_to_verify(given: str | None) -> str:
    """The target, by default a GPU if there is one; UsageError for one that runs nothing."""
    name = given or ("cuda:0" if gpu_count() else DEFAULT_TARGET)
    if check_target_name(name)[0] not in ("cuda", "emulator"):
        raise UsageError(
            f"{name} runs nothing, so nothing can be verified on it",
            code="cannot_verify",
            mend="use --target cuda:0 or emulator:h200",
        )
    return name


def vouching_catalogue(
    services: Services, bundle: OpenedBundle, *, rendered: bool, trust: bool
) -> Catalogue:
    """A catalogue of the bundle's files.

    That is today's, or the one that the bundle's search ran with, if this database has that search.
    UsageError `untrusted_bundle` when neither matches, unless `trust` is set.
    """
    with tempfile.TemporaryDirectory(prefix="greenfast-verify-") as folder:
        stated = kernel_of(bundle, Path(folder))
    if not foreign_files(services.catalogue, bundle, stated, rendered=rendered):
        return services.catalogue
    frozen = _frozen_catalogue(services, bundle)
    foreign = foreign_files(frozen or services.catalogue, bundle, stated, rendered=rendered)
    if foreign and not trust:
        raise UsageError(
            f"verifying would {foreign} of the bundle, which this installation does not know",
            code="untrusted_bundle",
            mend="read it, and pass --trust if you trust it",
        )
    return services.catalogue if foreign or frozen is None else frozen


def _frozen_catalogue(services: Services, bundle: OpenedBundle) -> Catalogue | None:
    search = bundle.evidence.get("search")
    try:
        return (
            services.catalogue_of(str(search["id"]))
            if isinstance(search, dict) and "id" in search
            else None
        )
    except UsageError:  # a search of another installation, or one whose files are lost
        return None


def programs_item(changed: Sequence[str]) -> Item:
    """Whether the programs of a bundle are those that this greenfast writes."""
    if not changed:
        return Item("programs", Finding.AGREES, "its programs are those that greenfast writes")
    names = shortened(", ".join(changed), LONGEST_NAMES)
    return Item(
        "programs",
        Finding.CANNOT_TELL,
        f"{names}: not as this version of greenfast writes it; read it before you use it",
    )


def rechecked(
    services: Services,
    bundle: OpenedBundle,
    kernel: KernelSpec,
    target_name: str,
    catalogue: Catalogue,
    seed: int,
    *,
    trust: bool,
) -> list[Item]:
    """The items, cheap ones first; an item that fails ends the list.

    `catalogue` vouches for the bundle's files, unless there is `trust`.
    """
    include_dirs = catalogue.include_dirs
    target = services.target(target_name, include_dirs=include_dirs)
    workloads = tuple(
        kernel.workload(str(workload["name"])) for workload in bundle.launch["workloads"]
    )
    context = EvaluationContext(
        kernel,
        workloads[0].compile_time(kernel),
        workloads,
        target,
        services.toolchain,
        include_dirs,
        GateLimits(max_spill_bytes=None),
        seed,
        mode=str(_table(bundle.environment, "plan").get("mode", "auto")),
        sizes_secret=secrets.randbelow(LARGEST_SECRET),
    )
    target.prepare()
    subject = _subject(context, bundle.launch, bundle.text("kernel.cu"))
    if isinstance(subject, Item):
        return [subject]
    spent = (
        f"{subject.machine_code.compile_s:.2f} s"
        if subject.machine_code.compile_s
        else "from the cache"
    )
    arch = target.device.compiled_arch(specific=subject.source.arch_specific)
    items = [Item("compile", Finding.AGREES, f"kernel.cu compiles for {arch} ({spent})")]
    if (code := _code_item(context, bundle, subject)) is not None:
        items.append(code)
        if code.finding is Finding.DISAGREES:
            return items
    if why := wrong_launch(kernel, bundle.launch, context.compiled, target.device):
        return [*items, Item("launch", Finding.DISAGREES, why)]
    sentence = "launch.json has the launches that kernel.toml and template.toml give"
    items.append(Item("launch", Finding.AGREES, sentence))
    if bundle.baseline_launch is not None:
        doubt = doubtful_baseline(context, bundle, None if trust else catalogue)
        items.append(_baseline_item(doubt))
    for gate in (CorrectnessGate(), SafetyGate()):
        if gate.name == "safety" and target.measures:
            items.append(
                Item(
                    "safety",
                    Finding.NOT_RECHECKED,
                    f"{target.name} does not check for races; --target {DEFAULT_TARGET} does",
                )
            )
            continue
        items.append(_item(gate.judge(subject)))
        if items[-1].finding is Finding.DISAGREES:
            return items
    return [*items, _time_item(context, bundle, subject)]


def _baseline_item(doubt: str) -> Item:
    if doubt:
        return Item("baseline", Finding.CANNOT_TELL, doubt)
    sentence = "baseline.cu is the text that its template and parameters give"
    return Item("baseline", Finding.AGREES, sentence)


def _code_item(context: EvaluationContext, bundle: OpenedBundle, subject: Subject) -> Item | None:
    """`greenfast.load` runs the bundle's machine code, and the other items check its source."""
    entries = tuple(subject.source.entries)
    source = replace(
        as_text(bundle.text("kernel.cu"), entries), arch_specific=subject.template.arch_specific
    )
    compared = compared_code(bundle.files, source, context.toolchain)
    if compared is None:
        return None
    same, sentence = compared
    if same is None:
        return Item("machine_code", Finding.NOT_RECHECKED, sentence)
    return Item("machine_code", Finding.AGREES if same else Finding.DISAGREES, sentence)


def _subject(context: EvaluationContext, launch: Mapping[str, Any], text: str) -> Subject | Item:
    """The source of the bundle, compiled; if that fails, an item with the reason.

    A GPU gets the text itself. The emulator gets the rendered template, which must be that text.
    """
    template = context.kernel.template(str(launch["template"]))
    candidate = Candidate(
        context.kernel.name,
        template.name,
        complete_parameters(template, launch["parameters"], context.compiled),
        Origin(OriginKind.SEEDED),
    )
    entries = tuple(dict.fromkeys(entry.entry for entry in template.launches))
    source = replace(as_text(text, entries), arch_specific=template.arch_specific)
    if not context.target.measures:
        rendered = context.render(candidate)
        if not isinstance(rendered, RenderedSource) or rendered.digest != source.digest:
            return Item(
                "compile",
                Finding.CANNOT_TELL,
                "the template renders to another text than kernel.cu here: kernel.cu was changed, "
                "or the primitives of kernel_templates/include/gf were; the emulator cannot run it",
            )
        source = rendered
    subject = prepare(candidate, context, source)
    if isinstance(subject, Rejected):
        return Item(
            "compile", Finding.DISAGREES, f"kernel.cu does not compile here: {subject.sentence}"
        )
    return subject


def _item(result: GateResult) -> Item:
    match result:
        case Passed():
            finding = Finding.AGREES
        case Failed():
            finding = Finding.DISAGREES
        case _:
            finding = Finding.NOT_RECHECKED
    return Item(result.gate, finding, result.sentence)


# ---- time ----


def _time_item(context: EvaluationContext, bundle: OpenedBundle, subject: Subject) -> Item:
    """The time, rechecked only if the bundle's was measured against its baseline on this model."""
    recorded = recorded_runs(bundle)
    model = str(_table(bundle.environment, "recorded").get("device", "unknown"))
    if not recorded:
        return Item(
            "time",
            Finding.NOT_RECHECKED,
            "the bundle has no time that was measured against its baseline",
        )
    if not context.target.measures:
        return Item(
            "time",
            Finding.NOT_RECHECKED,
            f"measured on {model}; {context.target.name} measures no time",
        )
    if model != context.target.device.name:
        return Item(
            "time",
            Finding.NOT_RECHECKED,
            f"measured on {model}, and this is {context.target.device.name}; "
            "times of different GPUs are not compared",
        )
    if bundle.baseline_launch is None:
        return Item("time", Finding.NOT_RECHECKED, "the bundle has no baseline to time it against")
    rival = _subject(context, bundle.baseline_launch, bundle.text("baseline.cu"))
    if isinstance(rival, Item):
        return Item("time", Finding.CANNOT_TELL, f"the baseline: {rival.sentence}")
    runs = []
    for number in range(PROCESSES):
        timings = _one_process(subject, rival, secrets.randbelow(LARGEST_SEED))
        if isinstance(timings, Failure):
            return Item("time", Finding.DISAGREES, f"process {number + 1}: {timings.sentence}")
        runs.append(timings)
    finding, sentence = compare_times(recorded, runs)
    return Item("time", finding, sentence)


def recorded_runs(bundle: OpenedBundle) -> list[tuple[Timing, ...]]:
    """Measured times of the bundle with their samples, one tuple for each process.

    They are those of its confirmation against the baseline, else those of the search itself; []
    without any. UsageError `bad_bundle` for evidence of another form.
    """
    try:
        return _recorded_runs(bundle)
    except MALFORMED as error:
        raise bad_bundle(
            f"evidence.json holds no times as a search stores them: {type(error).__name__}: {error}"
        ) from None


def _table(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = data.get(name, {})
    if not isinstance(value, dict):
        raise bad_bundle(f"environment.json: {name} is not a JSON object")
    return value


def _recorded_runs(bundle: OpenedBundle) -> list[tuple[Timing, ...]]:
    confirmation = bundle.evidence.get("confirmation") or {}
    for comparison in confirmation.get("comparisons", ()):
        if comparison["against"] == BASELINE:
            processes = comparison["processes"]
            return [_timings(process["timings"], "other_samples") for process in processes]
    candidate = bundle.evidence.get("candidate") or {}
    stored = candidate.get("gates", {}).get("performance", {}).get("timings") or ()
    measured = [timing for timing in stored if timing.get("time_kind") == TimeKind.MEASURED]
    timings = _timings(measured, "baseline_samples")
    return [timings] if timings else []


def _timings(stored: Sequence[Mapping[str, Any]], others: str) -> tuple[Timing, ...]:
    return tuple(
        Timing(
            timing["workload"],
            float(timing["time_median_us"]),
            TimeKind.MEASURED,
            "",
            samples=tuple(map(_time, timing["samples"])),
            baseline_samples=tuple(map(_time, timing[others])),
            weight=_time(timing.get("weight", 1.0)),
        )
        for timing in stored
        if timing.get(others)
    )


def _time(value: Any) -> float:
    """A number of which a logarithm can be taken; ValueError for any other."""
    number = float(value)
    if not 0.0 < number < math.inf:
        raise ValueError(f"{value!r} is not a time")
    return number


def _one_process(subject: Subject, rival: Subject, seed: int) -> tuple[Timing, ...] | Failure:
    subject.target.fresh()
    return timed_in_turns(subject.with_seed(seed), rival.with_seed(seed))


def compare_times(
    recorded: Sequence[Sequence[Timing]], runs: Sequence[Sequence[Timing]]
) -> tuple[Finding, str]:
    """Compare two ratios to the baseline, each from one or more processes.

    They agree when the interval of their difference contains 1. The scatter between processes is
    part of both intervals.
    """
    was, was_half = _run(recorded)
    now, now_half = _run(runs)
    difference, half = now - was, math.hypot(was_half, now_half)
    low, high = (math.exp(difference + sign * half) for sign in (-1, 1))
    medians = ", ".join(f"{run.workload} {run.time_median_us:.2f} us" for run in runs[-1])
    sentence = (
        f"measured again in {len(runs)} fresh processes: {math.exp(now):.4f} of the baseline's "
        f"time, {math.exp(was):.4f} recorded; a factor of {math.exp(difference):.4f} "
        f"[{low:.4f}, {high:.4f}] ({medians})"
    )
    if not half <= NOISY_HALF_WIDTH:
        return Finding.CANNOT_TELL, f"{sentence}: too noisy to tell"
    return (Finding.AGREES if low <= 1 <= high else Finding.DISAGREES), sentence


def _run(processes: Sequence[Sequence[Timing]]) -> tuple[float, float]:
    """(log ratio, half of its interval); the half joins the scatter between the processes with the
    widest of their own intervals."""
    intervals = [
        median_interval(
            combined(
                [block_log_ratios(timing.samples, timing.baseline_samples) for timing in timings],
                weights_of(timings),
            )
        )
        for timings in processes
    ]
    mean, scatter = mean_of_processes([interval.median for interval in intervals])
    widest = max((interval.high - interval.low) / 2 for interval in intervals)
    return mean, math.hypot(scatter, widest)
