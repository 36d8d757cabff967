"""The gates in the order in which they run: cheap first."""

from greenfast.search.gates.base import Baseline, Conditions, Gate, Subject
from greenfast.search.gates.correctness import CorrectnessGate
from greenfast.search.gates.performance import PerformanceGate
from greenfast.search.gates.ptxas import PtxasGate
from greenfast.search.gates.safety import SafetyGate
from greenfast.search.targets.base import GateLimits

GATES: tuple[Gate, ...] = (PtxasGate(), CorrectnessGate(), PerformanceGate(), SafetyGate())

__all__ = ["GATES", "Baseline", "Conditions", "Gate", "GateLimits", "Subject"]
