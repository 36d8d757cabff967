"""From gf-emulate's events to a RunResult.

Addresses become source lines, faults sentences, and counters sums.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from operator import add
from typing import Any

import numpy as np

from greenfast.search.targets.emulator.build import Module
from greenfast.search.targets.emulator.findings import addresses, findings_of
from greenfast.search.targets.emulator.runs import (
    CanaryDamage,
    Counters,
    LineCounters,
    Run,
    RunFault,
    RunResult,
)
from greenfast.search.targets.emulator.symbols import Frame, callers, kernel_line, source_frames
from greenfast.search.text import file_line

Event = Mapping[str, Any]
Frames = Mapping[int, tuple[Frame, ...]]
ACCESS_KINDS = ("shared_read", "shared_write", "global_read", "global_write")
SITE_KINDS = (*ACCESS_KINDS, "shared_write")  # by their numbers in native/counting.h
FLOAT_ADDITION = 4
WGMMA_FORMATS = ("wgmma_f16_f32", "wgmma_bf16_f32", "wgmma_fp8_f32")


def run_result(
    module: Module,
    run: Run,
    events: Sequence[Event],
    end: Event | None,
    outputs: Mapping[str, np.ndarray],
) -> RunResult:
    """The result of a run whose faults and findings are `events`.

    `end` is the run's last event; None: its process ended before it was sent.
    """
    fault_events = [event for event in events if event["event"] == "fault"]
    finding_events = [event for event in events if event["event"] == "finding"]
    frames = source_frames(
        module.path, (*_addresses(run, fault_events, end), *addresses(finding_events))
    )
    faults = [_fault(event, frames) for event in fault_events if not event["note"]]
    notes = tuple(_fault(event, frames) for event in fault_events if event["note"])
    if end is None:
        findings = findings_of(finding_events, (), faults, frames) if run.check else ()
        return RunResult(run.name, "crash", tuple(faults), notes, findings)
    canary = tuple(
        CanaryDamage(name, "before" if before else "behind", damaged, first)
        for name, before, damaged, first in end["canary"]
    )
    changed = tuple(end["input_changed"])
    faults += [_canary_fault(damage) for damage in canary]
    faults += [
        RunFault("input_changed", f"the kernel wrote to its input '{name}'") for name in changed
    ]
    return RunResult(
        name=run.name,
        status="fault" if faults else "finished",
        faults=tuple(faults),
        notes=notes,
        findings=findings_of(finding_events, end["findings"], faults, frames) if run.check else (),
        outputs=outputs,
        input_changed=changed,
        canary=canary,
        counters=_counters(run, end, frames) if run.count else None,
        smem_static_bytes=end["smem_static_bytes"],
        printf_calls=end["printfs"],
        keeps_state=end["keeps_state"],
        cpu_s=end["cpu_s"],
        wall_s=end["wall_s"],
    )


def _addresses(run: Run, fault_events: Sequence[Event], end: Event | None) -> Iterator[int]:
    for event in fault_events:
        yield event["site"]
        yield from (thread["site"] for thread in event["waiting"])
    if end is not None and run.count:
        yield from (site[0] for site in end["sites"])


def _fault(event: Event, frames: Frames) -> RunFault:
    where = kernel_line(frames.get(event["site"], ()))
    sentence = event["sentence"]
    of_site = frames.get(event["site"], ())
    if calls := callers(of_site):  # a helper's line alone does not tell which of its calls it was
        sentence += f" ({_place(where)}, called from {_place(calls[0])})"
    if event["waiting"]:
        sentence += "; " + _waiting(event["waiting"], frames)
    return RunFault(event["kind"], sentence, tuple(event["block"]), tuple(event["thread"]), where)


def _waiting(waiting: Sequence[Event], frames: Frames) -> str:
    """The waiting threads, grouped by the call in which they wait."""
    groups: dict[str, list[str]] = defaultdict(list)
    for thread in waiting:
        mask = f" with mask {thread['mask']:#010x}" if thread["mask"] else ""
        place = _place(kernel_line(frames.get(thread["site"], ())))
        groups[f"in {thread['operation']}{mask} at {place}"].append(
            "(" + ", ".join(map(str, thread["thread"])) + ")"
        )
    return "; ".join(f"threads {', '.join(threads)} {at}" for at, threads in groups.items())


def _place(where: Frame | None) -> str:
    return file_line(*where) if where else "an unknown line"


def _canary_fault(damage: CanaryDamage) -> RunFault:
    place = (
        f"{damage.first_offset_bytes} bytes past the end of"
        if damage.side == "behind"
        else f"{damage.first_offset_bytes} bytes before the start of"
    )
    return RunFault(
        "out_of_bounds",
        f"{damage.damaged_bytes} bytes outside '{damage.buffer}' were written, "
        f"the nearest {place} it",
    )


def _counters(run: Run, end: Event, frames: Frames) -> Counters:
    lines: dict[tuple[str, int, str], list[int]] = defaultdict(lambda: [0] * 6)
    float_additions = float_addition_wavefronts = 0
    for site, kind, *sums in end["sites"]:
        file, line = kernel_line(frames.get(site, ())) or ("?", 0)
        line_sums = lines[file, line, SITE_KINDS[kind]]
        line_sums[:] = map(add, line_sums, sums)
        if kind == FLOAT_ADDITION:
            float_additions += sums[0]
            float_addition_wavefronts += sums[2]
    per_line = tuple(LineCounters(*key, *sums) for key, sums in sorted(lines.items()))

    def total(member: str, *kinds: str) -> int:
        return sum(getattr(line, member) for line in per_line if line.kind in kinds)

    shared, globals_ = ACCESS_KINDS[:2], ACCESS_KINDS[2:]
    events = end["events"]
    widest = max((math.prod(launch.block) for launch in run.launches), default=0)
    return Counters(
        blocks_total=end["blocks_total"],
        blocks_executed=end["blocks_executed"],
        warps_per_block=-(-widest // 32),
        mma_flop=tuple(
            (name.removeprefix("mma_"), flop)
            for name, flop in events.items()
            if name.startswith("mma_")
        ),
        shared_bytes=total("total_bytes", *shared),
        shared_wavefronts=total("wavefronts", *shared),
        shared_wavefronts_ideal=total("wavefronts_ideal", *shared),
        global_sectors=total("sectors", *globals_),
        global_sectors_ideal=total("sectors_ideal", *globals_),
        global_load_bytes=total("total_bytes", "global_read"),
        global_store_bytes=total("total_bytes", "global_write"),
        async_copy_bytes=events["async_copy_bytes"],
        warp_memory_instructions=total("count", *ACCESS_KINDS),
        barriers=events["barriers"],
        warp_collectives=events["warp_collectives"],
        special_function_ops=events["special_function_ops"],
        atomics=events["atomics"],
        shared_float_additions=float_additions,
        shared_float_addition_wavefronts=float_addition_wavefronts,
        per_line=per_line,
        wgmma_flop=tuple(
            (name.removeprefix("wgmma_"), events[name]) for name in events if name in WGMMA_FORMATS
        ),
        wgmma_operand_bytes=events["wgmma_operand_bytes"],
        bulk_copy_bytes=events["bulk_copy_bytes"],
        mbarrier_operations=events["mbarrier_operations"],
        copy_rounds=events["copy_rounds"],
    )
