"""The answer of `greenfast.explain`: which kernel runs and why, or why the fallback does."""

from __future__ import annotations

from dataclasses import dataclass

from greenfast.runtime.calls import Prepared, Refused
from greenfast.runtime.fallbacks import FALLBACKS
from greenfast.runtime.kernel_set import KernelSet
from greenfast.runtime.program import Launch, Measured


@dataclass(frozen=True)
class Explanation:
    """`kernel` is None if the operation's own library runs, or nothing does."""

    operation: str
    kernel: str | None
    why: str
    origin: str  # the set or bundle of the kernel
    source_digest: str | None = None  # SHA-256 of the kernel's source
    launches: tuple[Launch, ...] = ()
    measured: tuple[Measured, ...] = ()  # the times on which the choice rests
    has_library: bool = True  # which runs the call that no kernel takes

    def __str__(self) -> str:
        if self.kernel is None and not self.has_library:
            return f"{self.operation}: no kernel of {self.origin} takes this call: {self.why}"
        if self.kernel is None:
            return f"{self.operation}: the library's own operation, because {self.why}"
        sizes = ", ".join(
            f"{launch.entry} {launch.grid} x {launch.block}" for launch in self.launches
        )
        shown = f" ({sizes})" if sizes else ""
        return f"{self.operation}: {self.kernel} of {self.origin}{shown}, because {self.why}"


def explanation(kernels: KernelSet, state: Prepared | Refused) -> Explanation:
    if isinstance(state, Refused):
        return Explanation(
            kernels.operation.name,
            None,
            state.why,
            kernels.origin,
            has_library=kernels.operation.name in FALLBACKS,
        )
    program = state.plan.program
    return Explanation(
        kernels.operation.name,
        program.name,
        state.choice.why,
        kernels.origin,
        program.source_digest,
        state.plan.launches,
        state.choice.measured,
    )
