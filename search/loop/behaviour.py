"""How a candidate behaves on a GPU, in bins: what a strategy may keep elites of."""

from __future__ import annotations

from greenfast.search.verdict import PtxasEvidence, Stage, Verdict, gate_result

REGISTERS, SMEM_BYTES = 32, 16 * 1024  # widths of bins
OCCUPANCIES = 8  # bins of occupancy


def behaviour_of(verdict: Verdict) -> tuple[int, ...]:
    """Bins of registers, shared memory and occupancy; empty if nothing was compiled."""
    result = gate_result(verdict, Stage.PTXAS)
    evidence = result.evidence if result is not None else None
    if not isinstance(evidence, PtxasEvidence):
        return ()
    smem_bytes = evidence.smem_static_bytes + evidence.smem_dynamic_bytes
    return (
        evidence.registers // REGISTERS,
        smem_bytes // SMEM_BYTES,
        round(evidence.occupancy * OCCUPANCIES),
    )
