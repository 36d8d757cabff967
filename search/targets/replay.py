"""`replay:NAME` answers from a recording: a search takes milliseconds a trial.

A replayed verdict is never `accepted`: its time was measured once, elsewhere. The performance gate
is `unavailable`, its evidence names the recording, and every time is of the kind `replayed`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from greenfast.search.acceptance import acceptance_sentence, ratio_of_medians
from greenfast.search.digest import digest
from greenfast.search.errors import Fault, UsageError, unknown_name
from greenfast.search.kernels.spec import KernelSpec, TemplateSpec
from greenfast.search.kernels.workloads import Items
from greenfast.search.recordings.contents import Heading, Recording, Row, operation_digest
from greenfast.search.recordings.imported import is_imported, recorded_space
from greenfast.search.recordings.rules import recorded_acceptance, time_us
from greenfast.search.recordings.shelf import find_recording
from greenfast.search.render import RenderedSource, render
from greenfast.search.space.candidate import (
    Candidate,
    Origin,
    OriginKind,
    complete_parameters,
    preset_candidate,
)
from greenfast.search.space.space import Space, resolve
from greenfast.search.strategies.objectives import TIME
from greenfast.search.targets.base import Answering, GateLimits, Question
from greenfast.search.targets.imported import imported_verdict
from greenfast.search.verdict import (
    COMPARED,
    CorrectnessEvidence,
    Failed,
    Green,
    Passed,
    PerformanceEvidence,
    PtxasEvidence,
    Reason,
    Rejected,
    SafetyEvidence,
    Stage,
    TimeKind,
    Timing,
    Unavailable,
    Verdict,
    rejection,
)

# Kernels of 5 us differed by up to 1.6 % between processes on an H200
# (bench/results/h200/gpu_target.json).
BAND = 1.016
SOURCES_LOOKED_AT = 12


class ReplayTarget(Answering):
    """One recording."""

    def __init__(self, which: str) -> None:
        self.name = f"replay:{which}"
        self._recording = find_recording(which)
        self.device = self._recording.heading.device

    def prepare(self) -> None:
        """The recording was read when this was made."""

    def space(self, template: TemplateSpec, compiled: Items) -> Space:
        return recorded_space(template, compiled, self._recording)

    def answers(self, question: Question) -> Verdict:
        """Fault for a candidate that was not recorded, or whose source has changed since."""
        heading, candidate = self._recording.heading, question.candidate
        row = self._recording.row_of(candidate)
        if row is None:
            raise Fault(
                f"the recording {heading.name} holds no such candidate", code="not_recorded"
            )
        if is_imported(self._recording):
            return imported_verdict(self._recording, row, question)
        if row.source_digest != question.source_digest:
            raise Fault(
                f"candidate {row.number} of the recording {heading.name} had the source "
                f"{row.source_digest[:12]} and renders as {question.source_digest[:12]} now",
                code="recording_stale",
                mend="record it again with `greenfast record`",
            )
        return _verdict(self._recording, row, question)

    def identity(self) -> tuple[tuple[str, str], ...]:
        """The recording and its own environment: with it, its toolchain."""
        heading = self._recording.heading
        environment = dict(heading.environment)
        own = ("target", "greenfast", "toolchain")
        return (
            *((name, value) for name, value in heading.environment if name not in own),
            ("toolchain", f"nvrtc {environment.get('nvidia-cuda-nvrtc', 'unknown')}"),
            ("target", self.name),
            ("recording", self._recording.sha256),
            ("recorded_on", environment.get("target", "unknown")),
            ("recorded_at", heading.recorded_at),
            ("recorded_with", environment.get("greenfast", "unknown")),
        )


def _verdict(recording: Recording, row: Row, question: Question) -> Verdict:
    """The recorded verdict under this search's limits and baseline, as far as a record gives it."""
    name = recording.heading.name
    reason = Reason(row.reason) if row.reason else None
    sentence = f"replayed from {name}: {row.sentence}"
    if row.stage == Stage.COMPILE and reason is not None:
        return Rejected(Stage.COMPILE, reason, sentence)
    over = _over(row.ptxas, question.limits)
    if over is not None:
        return rejection((), Failed(Stage.PTXAS.value, over[1], over[0], row.ptxas))
    if row.stage == Stage.PTXAS and reason is not None:
        return rejection((), Failed(Stage.PTXAS.value, sentence, reason, row.ptxas))
    ptxas = Passed(Stage.PTXAS.value, _replayed_figures(name, row.ptxas), row.ptxas)
    checks = CorrectnessEvidence((row.worst,) if row.worst else ())
    if row.stage == Stage.CORRECTNESS and reason is not None:
        return rejection((ptxas,), Failed(Stage.CORRECTNESS.value, sentence, reason, checks))
    correctness = Passed(
        Stage.CORRECTNESS.value,
        f"replayed from {name}: {row.outputs_checked} outputs were within both bounds of the "
        "checks of then; the one nearest to them is kept",
        checks,
    )
    if row.stage is not None and reason is not None and reason not in COMPARED:
        return rejection((ptxas, correctness), Failed(Stage.PERFORMANCE.value, sentence, reason))
    safety: Unavailable[SafetyEvidence] = Unavailable(
        Stage.SAFETY.value,
        "a recording has no information about races and uninitialised reads; use the emulator",
    )
    return Green((ptxas, correctness, _replayed_time(recording, row, question), safety))


def _replayed_figures(name: str, ptxas: PtxasEvidence | None) -> str:
    if ptxas is None:
        raise Fault(f"the recording {name} lacks the assembler's figures", code="not_recorded")
    return (
        f"replayed from {name}: {ptxas.registers} registers, "
        f"{ptxas.blocks_per_sm} blocks an SM (limited by {ptxas.limited_by})"
    )


def _replayed_time(
    recording: Recording, row: Row, question: Question
) -> Unavailable[PerformanceEvidence]:
    heading = recording.heading
    known = dict(zip(recording.workload_names(), row.times, strict=True))
    recorded = tuple((name, known[name]) for name in question.workloads)
    weights = question.weights or (1.0,) * len(recorded)
    timings = tuple(
        Timing(
            name,
            time_us(times),
            TimeKind.REPLAYED,
            "",
            (("floor_us", times.floor_us), *times.health),
            f"replayed from {heading.name}, row {row.number}: {times.note}",
            mode=times.mode,
            weight=weight,
        )
        for (name, times), weight in zip(recorded, weights, strict=True)
    )
    ratio = interval = None
    words = ""
    baseline = question.baseline
    if baseline is not None:
        first = recording.rows[0]
        as_recorded = question.against and recording.row_of(question.against) is first
        if as_recorded and not question.weights:
            then = recorded_acceptance(
                tuple(times for _, times in recorded), heading.protocol.min_gain
            )
            ratio, interval = then.ratio, then.interval if then.has_confidence else None
            words = f"; when recorded {acceptance_sentence(then, heading.device.title)}"
        else:
            ratio = ratio_of_medians(timings, baseline)
            words = (
                f"; {ratio:.4f} of the baseline's time, "
                "from medians of different candidates' samples"
            )
    times = ", ".join(f"{timing.workload} {timing.time_median_us:.2f} us" for timing in timings)
    sentence = (
        f"replayed, not measured now: {times} on {heading.device.title}, "
        f"{heading.recorded_at}{words}; times within a factor of {BAND:g} cannot be distinguished"
    )
    return Unavailable(
        Stage.PERFORMANCE.value, sentence, PerformanceEvidence(timings, ratio, BAND, interval)
    )


def _over(ptxas: PtxasEvidence | None, limits: GateLimits) -> tuple[Reason, str] | None:
    """The first of this search's limits that recorded figures exceed."""
    if ptxas is None:
        return None
    smem = ptxas.smem_static_bytes + ptxas.smem_dynamic_bytes
    for used, allowed, what, reason in (
        (ptxas.spill_bytes, limits.max_spill_bytes, "bytes of spilled registers", Reason.SPILLS),
        (ptxas.registers, limits.max_registers, "registers a thread", Reason.OVER_REQUEST_LIMIT),
        (smem, limits.max_smem_bytes, "bytes of shared memory a block", Reason.OVER_REQUEST_LIMIT),
    ):
        if allowed is not None and used > allowed:
            return reason, f"replayed figures: {used} {what}; {allowed} are allowed"
    return None


def on_record(which: str, request: Any, kernel: KernelSpec, include_dirs: tuple[Path, ...]) -> Any:
    """The request, completed with the recording's choices; UsageError for anything not recorded."""
    recording = find_recording(which)
    heading = recording.heading
    if kernel.name != heading.kernel:
        raise UsageError(
            f"replay:{which} is a recording of kernel {heading.kernel}, not of {kernel.name}",
            code="not_recorded",
        )
    for kind, names, held in (
        ("workload", request.workloads, recording.workload_names()),
        ("template", request.templates, (heading.template,)),
    ):
        for requested in names or ():
            if requested not in held:
                raise unknown_name(kind, requested, held, where=f"replay:{which}")
    spills = request.gates.get("ptxas", {})
    if (
        "max_spill_bytes" in spills
        and heading.protocol.max_spill_bytes is not None
        and (
            spills["max_spill_bytes"] is None
            or spills["max_spill_bytes"] > heading.protocol.max_spill_bytes
        )
    ):
        raise UsageError(
            f"replay:{which} holds no times of candidates that spill more than "
            f"{heading.protocol.max_spill_bytes} bytes",
            code="not_recorded",
        )
    if request.mode not in (None, "auto") and not all(
        timing.mode == request.mode for row in recording.rows for timing in row.times
    ):
        raise UsageError(
            f"replay:{which} holds no {request.mode} times: "
            "the mode of each was chosen by its size",
            code="not_recorded",
            mend="leave the mode out: times of different modes are never compared",
        )
    require_current(recording, kernel, include_dirs)
    baseline = request.baseline or heading.baseline
    if baseline != "none":
        compiled = heading.workloads[0].compile_time(kernel)
        template, preset = kernel.preset(baseline)
        preset_point = preset_candidate(template, preset.name, compiled)
        if recording.row_of(preset_point) is None:
            raise UsageError(
                f"replay:{which} holds no candidate {baseline}",
                code="not_recorded",
                mend=f"its own baseline is {heading.baseline}",
            )
    return replace(
        request,
        workloads=request.workloads or recording.workload_names(),
        templates=(heading.template,),
        baseline=baseline,
    )


def require_recorded(which: str, objectives: tuple[str, ...]) -> None:
    """UsageError for objectives that an imported space does not have: all but the time."""
    others = [name for name in objectives if name != TIME]
    if others and is_imported(find_recording(which)):
        raise UsageError(
            f"replay:{which} is an imported space, which holds times only, not {others[0]}",
            code="not_recorded",
            mend=f"search it with the objective {TIME}",
        )


def require_current(
    recording: Recording, kernel: KernelSpec, include_dirs: tuple[Path, ...]
) -> None:
    """UsageError when the kernel or a template is not the recorded one.

    The source decides: a template whose files changed is current while it renders the recorded
    candidates as before.
    """
    heading = recording.heading
    now = operation_digest(
        kernel, tuple(kernel.workload(workload.name) for workload in heading.workloads)
    )
    if now != heading.operation_digest:
        raise UsageError(
            f"{heading.name} was recorded for another form of kernel {kernel.name} "
            f"({heading.operation_digest[:12]} then, {now[:12]} now)",
            code="recording_stale",
            mend="record it again with `greenfast record`",
        )
    if is_imported(recording):  # without code, the operation is all there is
        return
    compiled = heading.workloads[0].compile_time(kernel)
    for then in heading.templates:
        template = kernel.template(then.name)
        today = digest(template)
        rows = [row for row in recording.rows if row.template == then.name]
        for row in rows[:: max(1, len(rows) // SOURCES_LOOKED_AT)]:
            try:
                parameters = complete_parameters(
                    template, dict(recording.parameters(row)), compiled
                )
            except UsageError as error:
                raise _stale(heading, then.name, today, error.message) from error
            candidate = Candidate(kernel.name, then.name, parameters, Origin(OriginKind.SEEDED))
            point = resolve(template, candidate.parameters, compiled, heading.device)
            source = render(kernel, template, point, include_dirs)
            if not isinstance(source, RenderedSource) or source.digest != row.source_digest:
                raise _stale(
                    heading, then.name, today, f"its candidate {row.number} renders differently"
                )


def _stale(heading: Heading, template: str, today: str, why: str) -> UsageError:
    then = heading.recorded_template(template).text_digest
    return UsageError(
        f"{heading.name} was recorded with another template {template} ({then[:12]} then, "
        f"{today[:12]} now): {why}",
        code="recording_stale",
        mend="record it again with `greenfast record`",
    )
