"""Gate 1: compares the assembler's figures with the limits of the device and of the request."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from greenfast.search.devices.clusters import device_lacks, misdeclared
from greenfast.search.devices.facts import Device
from greenfast.search.devices.occupancy import occupancy
from greenfast.search.errors import Fault
from greenfast.search.gates.base import Baseline, Subject
from greenfast.search.targets.base import GateLimits
from greenfast.search.toolchain.launch_bounds import other_clusters, over_launch_bounds
from greenfast.search.toolchain.ptxas import parse_notes
from greenfast.search.verdict import AssemblerNote, Failed, Passed, PtxasEvidence, Reason

Breach = tuple[Reason, str]  # of a limit, with its sentence


class PtxasGate:
    name = "ptxas"
    compares = False

    def judge(
        self, subject: Subject, baseline: Baseline | None = None
    ) -> Passed[PtxasEvidence] | Failed[PtxasEvidence]:
        evidence = figures(subject)
        breaches = chain(
            _bad_launch(subject, evidence),
            _over_device(subject.target.device, evidence),
            _over_request(subject.conditions.limits, evidence),
        )
        if (breach := next(breaches, None)) is not None:
            reason, sentence = breach
            return Failed(self.name, sentence, reason, evidence)
        smem = _smem_bytes(evidence)
        return Passed(
            self.name,
            f"{evidence.registers} registers, {smem} bytes of shared memory, no rule broken; "
            f"{evidence.blocks_per_sm} blocks an SM (limited by {evidence.limited_by})"
            + _remarks(evidence.notes),
            evidence,
        )


def _bad_launch(subject: Subject, evidence: PtxasEvidence) -> Iterator[Breach]:
    """Clusters and blocks that the device or the source's own declarations forbid."""
    clusters = subject.point.clusters
    for _, shape in clusters:
        if lacking := device_lacks(shape, subject.target.device):
            yield Reason.OVER_DEVICE_LIMIT, lacking
    if differing := misdeclared(subject.source.text, clusters):
        yield Reason.LAUNCH_ERROR, differing
    if differing := other_clusters(subject.machine_code.ptx, clusters):
        yield Reason.LAUNCH_ERROR, differing
    if beyond := over_launch_bounds(
        subject.machine_code.ptx, subject.source.entries, evidence.threads_per_block
    ):
        yield Reason.LAUNCH_ERROR, beyond


def _over_device(device: Device, evidence: PtxasEvidence) -> Iterator[Breach]:
    smem = _smem_bytes(evidence)
    if smem > device.smem_per_block_bytes:
        sentence = (
            f"{smem} bytes of shared memory a block; "
            f"{device.name} has {device.smem_per_block_bytes}"
        )
        yield Reason.OVER_DEVICE_LIMIT, sentence
    if evidence.blocks_per_sm == 0:
        sentence = (
            f"{evidence.registers} registers x {evidence.threads_per_block} threads "
            f"do not fit an SM of {device.name}"
        )
        yield Reason.OVER_DEVICE_LIMIT, sentence


def _over_request(limits: GateLimits, evidence: PtxasEvidence) -> Iterator[Breach]:
    spills, registers, smem = evidence.spill_bytes, evidence.registers, _smem_bytes(evidence)
    if limits.max_spill_bytes is not None and spills > limits.max_spill_bytes:
        sentence = (
            f"{spills} bytes of registers spill to local memory; "
            f"{limits.max_spill_bytes} are allowed"
        )
        yield Reason.SPILLS, sentence
    if limits.max_registers is not None and registers > limits.max_registers:
        sentence = f"{registers} registers a thread; the request allows {limits.max_registers}"
        yield Reason.OVER_REQUEST_LIMIT, sentence
    if limits.max_smem_bytes is not None and smem > limits.max_smem_bytes:
        sentence = (
            f"{smem} bytes of shared memory a block; the request allows {limits.max_smem_bytes}"
        )
        yield Reason.OVER_REQUEST_LIMIT, sentence


def _smem_bytes(evidence: PtxasEvidence) -> int:
    return evidence.smem_static_bytes + evidence.smem_dynamic_bytes


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
        subject.machine_code.machine_code,
    )
