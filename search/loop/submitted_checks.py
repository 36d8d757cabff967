"""The safety checks of a submission with wrong results, so that its author learns both lines.

A race often shows as wrong values first, and the gates end there. A search spares such candidates
the checks; a submission is judged alone, and its author acts on them. They change no verdict.
"""

from __future__ import annotations

from dataclasses import replace

from greenfast.search.errors import Fault, SpecError
from greenfast.search.gates.base import Subject
from greenfast.search.gates.safety import SafetyGate
from greenfast.search.kernels.submitted_name import is_submitted
from greenfast.search.verdict import Rejected, Stage


def also_checked(subject: Subject, rejected: Rejected) -> Rejected:
    """The verdict on a submission, with the safety checks' findings beside wrong results."""
    if rejected.stage is not Stage.CORRECTNESS or not is_submitted(subject.candidate.template):
        return rejected
    try:
        result = SafetyGate().checked(subject)
    except (Fault, SpecError):  # the verdict rests on the results; findings only explain it
        return rejected
    gates = tuple(result if gate.gate == result.gate else gate for gate in rejected.gates)
    return replace(rejected, gates=gates)
