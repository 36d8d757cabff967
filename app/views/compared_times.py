"""The times of two trials, with no claim beyond what their kind of time shows."""

from __future__ import annotations

from greenfast.app.views.compare_schemas import TimeVerdictOut
from greenfast.app.views.confirmations import finite
from greenfast.db.rows import ConfirmationRow, SearchRow, TrialDetail
from greenfast.search.loop.comparison import Comparison
from greenfast.search.loop.plan import SearchPlan

Side = tuple[SearchRow, SearchPlan, TrialDetail]
SAME_SHARE = 0.01  # an interval inside +-1 % is a tie


def time_verdict(a: Side, b: Side, confirmation: ConfirmationRow | None) -> TimeVerdictOut:
    """`confirmation`: of the search that both are of, if they are of one."""
    times = a[2].time_median_us, b[2].time_median_us
    if not times[0] or not times[1]:
        missing = " and ".join(
            f"trial {side[2].number} of {side[2].search_id}"
            for side, time_us in zip((a, b), times, strict=True)
            if not time_us
        )
        return _incomparable(f"{missing} has no time")
    if different := _differences(a, b):
        return _incomparable(f"the times were taken under different conditions: {different}")
    ratio = times[0] / times[1]
    if a[2].time_kind != "measured":
        return _by_band(ratio, a[2], b[2])
    if (direct := _confirmed(confirmation, a[2].number, b[2].number)) is not None:
        return direct
    if a[2].search_id != b[2].search_id:
        return TimeVerdictOut(
            ratio=ratio,
            ratio_low=None,
            ratio_high=None,
            decision="ambiguous",
            sentence="The two were measured in different searches and never timed in turns, so "
            "their ratio has no interval.",
        )
    return _by_intervals(ratio, a[2], b[2])


def _differences(a: Side, b: Side) -> str:
    """The conditions in which two times differ, so that they cannot be compared."""
    facts = [
        ("workloads", _shapes(a), _shapes(b)),
        ("kernel", a[1].kernel, b[1].kernel),
        ("kind of time", a[2].time_kind, b[2].time_kind),
        ("mode", a[2].time_mode, b[2].time_mode),
        ("device", _device(a), _device(b)),
        ("toolchain", a[2].environment.get("toolchain"), b[2].environment.get("toolchain")),
    ]
    return ", ".join(
        f"{name} ({left or 'not recorded'}; {right or 'not recorded'})"
        for name, left, right in facts
        if left != right
    )


def _shapes(side: Side) -> str:
    if not side[1].shapes:
        return ", ".join(side[1].workloads)
    return "; ".join(
        " ".join(f"{name}={value}" for name, value in shape) for shape in side[1].shapes
    )


def _device(side: Side) -> str:
    return side[2].environment.get("gpu") or side[2].environment.get("device") or side[0].target


def _incomparable(why: str) -> TimeVerdictOut:
    return TimeVerdictOut(
        ratio=None,
        ratio_low=None,
        ratio_high=None,
        decision="not_comparable",
        sentence=f"{why[0].upper()}{why[1:]}.",
    )


def _by_band(ratio: float, a: TrialDetail, b: TrialDetail) -> TimeVerdictOut:
    band = max(a.time_band or 1.0, b.time_band or 1.0)
    told_apart = not 1 / band < ratio < band and ratio != 1
    decision = ("faster" if ratio < 1 else "slower") if told_apart else "not_told_apart"
    kind = (a.time_kind or "").capitalize()
    if band == 1:
        sentence = f"{kind} times" if told_apart else f"{kind} times, which are equal"
        return TimeVerdictOut(
            ratio=ratio,
            ratio_low=None,
            ratio_high=None,
            decision=decision,
            sentence=f"{sentence}.",
        )
    sentence = (
        f"{kind} times, which differ by more than a factor of {band:g}."
        if told_apart
        else f"{kind} times within a factor of {band:g} cannot be distinguished."
    )
    return TimeVerdictOut(
        ratio=ratio, ratio_low=None, ratio_high=None, decision=decision, sentence=sentence
    )


def _confirmed(confirmation: ConfirmationRow | None, a: int, b: int) -> TimeVerdictOut | None:
    """A direct comparison in fresh processes, where the confirmation made one."""
    if confirmation is None:
        return None
    winner = confirmation.confirmation.trial
    for comparison in confirmation.confirmation.comparisons:
        if (winner, comparison.other_trial) == (a, b):
            return _direct(comparison, inverted=False)
        if (winner, comparison.other_trial) == (b, a):
            return _direct(comparison, inverted=True)
    return None


def _direct(comparison: Comparison, *, inverted: bool) -> TimeVerdictOut:
    low, ratio, high = map(finite, (comparison.ratio_low, comparison.ratio, comparison.ratio_high))
    decision = str(comparison.decision)
    if inverted:
        low, ratio, high = (1 / each if each else None for each in (high, ratio, low))
        decision = {"faster": "slower", "slower": "faster"}.get(decision, decision)
    return TimeVerdictOut(
        ratio=ratio,
        ratio_low=low,
        ratio_high=high,
        decision=decision,
        sentence=f"Timed in turns in {len(comparison.processes)} fresh processes.",
    )


def _by_intervals(ratio: float, a: TrialDetail, b: TrialDetail) -> TimeVerdictOut:
    """Both against the same baseline: the bounds of their intervals, at their worst together."""
    left, right = _interval(a), _interval(b)
    if left is None or right is None:
        return TimeVerdictOut(
            ratio=ratio,
            ratio_low=None,
            ratio_high=None,
            decision="ambiguous",
            sentence="No interval is stored for one of the two, so nothing is claimed.",
        )
    low, high = left[0] / right[1], left[1] / right[0]
    middle = (a.ratio_to_baseline or ratio) / (b.ratio_to_baseline or 1.0)
    return TimeVerdictOut(
        ratio=middle,
        ratio_low=low,
        ratio_high=high,
        decision=_decision(low, high),
        sentence="Each was timed in turns with the baseline, not with the other. The interval "
        "takes both at their worst.",
    )


def _decision(low: float, high: float) -> str:
    if high < 1:
        return "faster"
    if low > 1:
        return "slower"
    return "same" if low >= 1 - SAME_SHARE and high <= 1 + SAME_SHARE else "ambiguous"


def _interval(trial: TrialDetail) -> tuple[float, float] | None:
    if trial.is_baseline:
        return 1.0, 1.0
    interval = trial.gates.get("performance", {}).get("ratio_interval")
    if not interval or not all(isinstance(bound, float) for bound in interval):
        return None
    low, high = map(finite, interval)
    return (low, high) if low and high else None
