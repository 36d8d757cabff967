"""Gate 1: compares the assembler's figures with the limits of the device and of the request."""

from __future__ import annotations

from greenfast.search.devices.clusters import device_lacks, misdeclared
from greenfast.search.devices.occupancy import occupancy
from greenfast.search.errors import Fault
from greenfast.search.gates.base import Baseline, Subject
from greenfast.search.toolchain.launch_bounds import over_launch_bounds
from greenfast.search.toolchain.ptxas import parse_notes
from greenfast.search.verdict import AssemblerNote, Failed, Passed, PtxasEvidence, Reason


class PtxasGate:
    name = "ptxas"
    compares = False

    def judge(
        self, subject: Subject, baseline: Baseline | None = None
    ) -> Passed[PtxasEvidence] | Failed[PtxasEvidence]:
        evidence = figures(subject)
        device, limits = subject.target.device, subject.conditions.limits
        smem = evidence.smem_static_bytes + evidence.smem_dynamic_bytes
        clusters = subject.point.clusters
        lacking = next(filter(None, (device_lacks(shape, device) for _, shape in clusters)), "")
        differing = misdeclared(subject.source.text, clusters)
        beyond = over_launch_bounds(
            subject.machine_code.ptx, subject.source.entries, evidence.threads_per_block
        )
        over = [
            (bool(lacking), Reason.OVER_DEVICE_LIMIT, lacking),
            (bool(differing), Reason.LAUNCH_ERROR, differing),
            (bool(beyond), Reason.LAUNCH_ERROR, beyond),
            (
                smem > device.smem_per_block_bytes,
                Reason.OVER_DEVICE_LIMIT,
                (
                    f"{smem} bytes of shared memory a block; "
                    f"{device.name} has {device.smem_per_block_bytes}"
                ),
            ),
            (
                evidence.blocks_per_sm == 0,
                Reason.OVER_DEVICE_LIMIT,
                (
                    f"{evidence.registers} registers x {evidence.threads_per_block} threads "
                    f"do not fit an SM of {device.name}"
                ),
            ),
            (
                limits.max_spill_bytes is not None
                and evidence.spill_bytes > limits.max_spill_bytes,
                Reason.SPILLS,
                (
                    f"{evidence.spill_bytes} bytes of registers spill to local memory; "
                    f"{limits.max_spill_bytes} are allowed"
                ),
            ),
            (
                limits.max_registers is not None and evidence.registers > limits.max_registers,
                Reason.OVER_REQUEST_LIMIT,
                (
                    f"{evidence.registers} registers a thread; "
                    f"the request allows {limits.max_registers}"
                ),
            ),
            (
                limits.max_smem_bytes is not None and smem > limits.max_smem_bytes,
                Reason.OVER_REQUEST_LIMIT,
                (
                    f"{smem} bytes of shared memory a block; "
                    f"the request allows {limits.max_smem_bytes}"
                ),
            ),
        ]
        for failed, reason, sentence in over:
            if failed:
                return Failed(self.name, sentence, reason, evidence)
        return Passed(
            self.name,
            f"{evidence.registers} registers, {smem} bytes of shared memory, no rule broken; "
            f"{evidence.blocks_per_sm} blocks an SM (limited by {evidence.limited_by})"
            + _remarks(evidence.notes),
            evidence,
        )


def _remarks(notes: tuple[AssemblerNote, ...]) -> str:
    """Names of the assembler's remarks for a gate's sentence; empty without any."""
    names = dict.fromkeys(f"{note.name} ({note.code})" for note in notes)
    return "; the assembler notes " + ", ".join(names) if names else ""


def figures(subject: Subject) -> PtxasEvidence:
    """The largest figures over the template's entries."""
    entries = [
        entry for entry in subject.machine_code.entries if entry.entry in subject.source.entries
    ]
    if len(entries) != len(subject.source.entries):
        missing = sorted(set(subject.source.entries) - {entry.entry for entry in entries})
        raise Fault(
            f"the assembler's log has no figures for {', '.join(missing)}; "
            'is it extern "C" __global__?',
            code="ptxas_log_unreadable",
        )
    registers = max(entry.registers for entry in entries)
    static = max(entry.smem_static_bytes for entry in entries)
    dynamic, threads = subject.point.smem_dynamic_bytes, subject.point.threads_per_block
    resident = occupancy(subject.target.device, registers, threads, static + dynamic)
    return PtxasEvidence(
        registers,
        sum(entry.spill_bytes for entry in entries),
        max(entry.stack_bytes for entry in entries),
        static,
        dynamic,
        threads,
        resident.blocks_per_sm,
        resident.share,
        resident.limited_by,
        parse_notes(subject.machine_code.log),
    )
