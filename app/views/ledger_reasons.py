"""The reasons for which each stage can reject, and the figures that a rejection has by then."""

from __future__ import annotations

from greenfast.search.verdict import Reason, Stage

COMPILED = frozenset(
    {
        Reason.COMPILE_ERROR,
        Reason.COMPILE_TIMEOUT,
        Reason.COMPILE_MEMORY,
        Reason.COMPILE_CRASH,
        Reason.OVER_DEVICE_LIMIT,  # of tuners that check it before they compile
    }
)
ASSEMBLED = frozenset(
    {Reason.OVER_DEVICE_LIMIT, Reason.SPILLS, Reason.OVER_REQUEST_LIMIT, Reason.LAUNCH_ERROR}
)
TIMED = frozenset(
    {Reason.SLOWER, Reason.SAME, Reason.AMBIGUOUS, Reason.TOO_NOISY, Reason.IMPLAUSIBLE}
)
WATCHED = frozenset({Reason.RACE, Reason.UNINITIALISED, Reason.IN_FLIGHT_READ})
# Whatever launches a kernel can see it fail, and each of the later gates launches it.
LAUNCHED = frozenset(Reason) - COMPILED - ASSEMBLED - TIMED - WATCHED - {Reason.RENDER_ERROR}
LAUNCHED |= {Reason.LAUNCH_ERROR}

REASONS: dict[Stage, frozenset[Reason]] = {
    Stage.RENDER: frozenset({Reason.RENDER_ERROR}),
    Stage.COMPILE: COMPILED,
    Stage.PTXAS: ASSEMBLED,
    Stage.CORRECTNESS: LAUNCHED | WATCHED,  # some faults end a plain run of the emulator, too
    Stage.PERFORMANCE: LAUNCHED | TIMED,
    Stage.SAFETY: LAUNCHED | WATCHED,
}
BEFORE_A_CUBIN = (Stage.RENDER, Stage.COMPILE)
BEFORE_A_LAUNCH = (*BEFORE_A_CUBIN, Stage.PTXAS)


def rejection_problem(
    stage: Stage, reason: Reason, *, has_time: bool, has_registers: bool
) -> str | None:
    """Why such a rejection cannot be; None for a possible one.

    A time is possible at `correctness`: fresh processes may find a timed candidate wrong.
    """
    if reason not in REASONS[stage]:
        return f"the stage {stage} rejects nothing as {reason}"
    if has_time and stage in BEFORE_A_LAUNCH:
        return f"a trial that was rejected at {stage} has no time"
    if has_registers and stage in BEFORE_A_CUBIN:
        return f"a trial that was rejected at {stage} has no registers"
    return None
