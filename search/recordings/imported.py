"""An imported space as a recording, from which a replay answers.

Its heading says where it comes from, so that no page calls it measured by greenfast.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from greenfast.search.devices.facts import Device
from greenfast.search.kernels.spec import KernelSpec, TemplateSpec
from greenfast.search.kernels.workloads import Items
from greenfast.search.recordings.contents import (
    Heading,
    Protocol,
    RecordedTemplate,
    Recording,
    Row,
    Times,
    checks_digest,
    operation_digest,
    recording_of,
)
from greenfast.search.recordings.foreign import (
    FAILURES,
    UNKNOWN_FAILURE,
    ForeignSpace,
)
from greenfast.search.recordings.foreign_kernel import TEMPLATE, WORKLOAD, ForeignParameter
from greenfast.search.recordings.space import RecordedSpace
from greenfast.search.space.points import Points
from greenfast.search.text import one_line, shortened

IMPORTED = "imported_from"
NO_BASELINE = "none"


def is_imported(recording: Recording) -> bool:
    """Whether its rows come from another tuner's file."""
    return IMPORTED in dict(recording.heading.environment)


def imported_recording(
    name: str,
    path: Path,
    space: ForeignSpace,
    parameters: tuple[ForeignParameter, ...],
    kernel: KernelSpec,
) -> Recording:
    """The recording of a file that was read; `kernel` is the one without code."""
    note = _note(space)
    rows = []
    for number, result in enumerate(space.results):
        values = tuple(
            parameter.here(value)
            for parameter, value in zip(parameters, result.configuration, strict=True)
        )
        stage, reason = (None, None)
        if result.figure is None:
            stage, reason = FAILURES.get(result.failure, UNKNOWN_FAILURE)
        times = () if result.figure is None else (_times(result.figure, note),)
        sentence = "" if result.figure is not None else _sentence(result.failure)
        rows.append(
            Row(number, TEMPLATE, values, "", stage, reason, sentence, None, 0, None, times)
        )
    template = kernel.template(TEMPLATE)
    workload = kernel.workload(WORKLOAD)
    heading = Heading(
        name=name,
        kernel=kernel.name,
        operation_digest=operation_digest(kernel, (workload,)),
        checks_digest=checks_digest(kernel),
        workloads=(workload,),
        template=TEMPLATE,
        lattice=tuple((each.name, each.values) for each in template.parameters),
        baseline=NO_BASELINE,
        templates=(
            RecordedTemplate(
                TEMPLATE,
                hashlib.sha256(template.text.encode()).hexdigest(),
                tuple(each.name for each in template.parameters),
            ),
        ),
        device=_device(space.device or f"the GPU of {path.name}"),
        protocol=Protocol(seed=0, check_seeds=0, max_spill_bytes=None, min_gain=0.0),
        environment=(
            (IMPORTED, path.name),
            ("format", space.form),
            ("objective", space.objective),
            ("unit", space.unit or "none"),
            ("file_sha256", hashlib.sha256(path.read_bytes()).hexdigest()),
            ("target", space.device or "unknown"),
        ),
        recorded_at=time.strftime("%Y-%m-%d", time.gmtime()),
    )
    return recording_of(heading, rows, complete=True)


def _note(space: ForeignSpace) -> str:
    note = f"{space.objective} of a {space.form} file"
    return f"{space.scale}{note}, not a time" if space.scale else note


def _sentence(failure: str) -> str:
    return f"the file has no valid result: {shortened(one_line(failure), 150)}"


def _times(figure: float, note: str) -> Times:
    return Times((figure,), (), 0.0, note, (), "hot")


def _device(title: str) -> Device:
    """A GPU of which only the name is known, with limits that every CUDA device has."""
    return Device(
        name="imported",
        title=title,
        sm=70,
        multiprocessors=1,
        clock_max_mhz=1,
        registers_per_sm=65536,
        registers_per_block=65536,
        registers_per_thread=255,
        register_unit_per_warp=256,
        threads_per_sm=1024,
        threads_per_block=1024,
        blocks_per_sm=16,
        smem_per_sm_bytes=65536,
        smem_per_block_bytes=65536,
        smem_reserved_bytes=0,
        l2_bytes=1,
        dram_bytes_per_us=0.0,
        tensor_fp16_flop_per_cycle_per_sm=0,
        fp32_flop_per_cycle_per_sm=0,
        special_function_per_cycle_per_sm=0,
        shared_bytes_per_cycle_per_sm=0,
    )


class ImportedSpace(RecordedSpace):
    """The configurations of the file. Its restrictions are unknown, so the rows are the space.

    It has no presets: the file names no design that somebody found good.
    """

    def __init__(self, template: TemplateSpec, compiled: Items, recording: Recording) -> None:
        super().__init__(template, compiled, recording)
        self.template = replace(self.template, presets=())

    @cached_property
    def points(self) -> Points:
        """The rows in the order of the file."""
        return Points(self.template.parameters, self.each_point())


def recorded_space(template: TemplateSpec, compiled: Items, recording: Recording) -> RecordedSpace:
    """The points of a recording, also of an imported one."""
    kind = ImportedSpace if is_imported(recording) else RecordedSpace
    return kind(template, compiled, recording)
