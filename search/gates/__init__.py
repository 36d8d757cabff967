"""The gates in the order in which they run: cheap first."""

from greenfast.search.gates.base import Gate, GateLimits, Subject
from greenfast.search.gates.correctness import CorrectnessGate
from greenfast.search.gates.performance import PerformanceGate
from greenfast.search.gates.ptxas import PtxasGate
from greenfast.search.gates.safety import SafetyGate

GATES: tuple[Gate, ...] = (PtxasGate(), CorrectnessGate(), PerformanceGate(), SafetyGate())

__all__ = ["GATES", "Gate", "GateLimits", "Subject"]
