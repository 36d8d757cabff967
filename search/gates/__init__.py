"""The gates in the order in which they run: cheap first."""

from search.gates.base import Gate, GateLimits, Subject
from search.gates.correctness import CorrectnessGate
from search.gates.performance import PerformanceGate
from search.gates.ptxas import PtxasGate
from search.gates.safety import SafetyGate

GATES: tuple[Gate, ...] = (PtxasGate(), CorrectnessGate(), PerformanceGate(), SafetyGate())

__all__ = ["GATES", "Gate", "GateLimits", "Subject"]
