"""The settings of a request that are plain values: each checked, or its default.

An invalid value is a UsageError that states the valid ones.
"""

from __future__ import annotations

import secrets
from dataclasses import fields
from typing import Any

from greenfast.search.errors import Refusals, UsageError, unknown_name
from greenfast.search.kernels.workload_files import LARGEST_WEIGHT
from greenfast.search.oracle.cases import LARGEST_SEED
from greenfast.search.targets.base import GateLimits
from greenfast.search.text import shortened

DEFAULT_TRIALS = 40
LARGEST_TRIALS = 1_000_000
LARGEST_SECONDS = 30 * 24 * 3600.0
DEFAULT_MIN_GAIN = 0.01  # a share of the baseline's time
# The caches under a measured time: chosen by the workload's size; its data in L2 (hot); its data
# in memory, by a ring of input sets (cold).
MODES = ("auto", "hot", "cold")
LONGEST_NAME = 200
LONGEST_NOTE = 1_000
GATE_LIMITS = {"ptxas": tuple(limit.name for limit in fields(GateLimits))}


def trials_of(trials: int | None, seconds: float | None, gpu_seconds: float | None) -> int | None:
    """The trials as given, or the default number without any budget."""
    if trials is None and seconds is None and gpu_seconds is None:
        return DEFAULT_TRIALS
    if trials is not None and not 1 <= trials <= LARGEST_TRIALS:
        raise UsageError(
            f"budget.trials must be between 1 and {LARGEST_TRIALS:,}; got {trials}",
            code="bad_budget",
            mend=f"give 1 to {LARGEST_TRIALS:,} trials",
        )
    return trials


def seconds_of(seconds: float | None) -> float | None:
    if seconds is not None and not 0 < seconds <= LARGEST_SECONDS:
        raise UsageError(
            f"budget.seconds must be above 0 and at most {LARGEST_SECONDS:,.0f}; got {seconds:g}",
            code="bad_budget",
            mend="give more than 0 seconds, at most 30 days",
        )
    return seconds


def seed_of(given: int | None) -> int:
    """The seed as given, or a random one."""
    if given is None:
        return secrets.randbelow(2**31)
    if not 0 <= given <= LARGEST_SEED:
        raise UsageError(
            f"the seed is {given}; it must be between 0 and {LARGEST_SEED}", code="bad_seed"
        )
    return given


def workload_weights(given: tuple[float, ...] | None, workloads: int) -> tuple[float, ...]:
    """A weight for each workload; () where all are equal, which changes no mean."""
    weights = given or ()
    if weights and len(weights) != workloads:
        raise UsageError(
            f"{len(weights)} weights for {workloads} workloads",
            code="bad_weight",
            mend="give each workload a weight, or none",
        )
    for weight in weights:
        if not 0 < weight <= LARGEST_WEIGHT:
            raise UsageError(
                f"a weight is {weight:g}; weights must be above 0 and at most {LARGEST_WEIGHT:g}",
                code="bad_weight",
            )
    return tuple(map(float, weights)) if len(set(weights)) > 1 else ()


def min_gain_of(given: float | None) -> float:
    gain = DEFAULT_MIN_GAIN if given is None else given
    if not 0 <= gain < 1:
        raise UsageError(
            f"min_gain is {gain:g}; it must be a share of 0 or more and below 1",
            code="bad_min_gain",
        )
    return gain


def note_of(name: str, text: str) -> str:
    """A person's note on a search; UsageError `bad_note` for one that is too long."""
    if len(text) > LONGEST_NOTE or not text.isprintable():
        raise UsageError(
            f"the {name} of a search is at most {LONGEST_NOTE} printable characters",
            code="bad_note",
        )
    return text.strip()


def expected_gain_of(gain: float | None) -> float | None:
    if gain is not None and not 0 <= gain < 1:
        raise UsageError(
            f"the expected gain is {gain:g}; it must be a share of the baseline's time of 0 or "
            "more and below 1",
            code="bad_expected_gain",
        )
    return gain


def mode_of(given: str | None) -> str:
    if given is not None and given not in MODES:
        raise unknown_name("mode", given, MODES)
    return given or MODES[0]


def gate_limits_of(gates: dict[str, dict[str, Any]]) -> GateLimits:
    wrong = Refusals()
    for gate, settings in gates.items():
        if wrong.is_full:
            break
        with wrong.at(f"gates.{gate}"):
            if gate not in GATE_LIMITS:
                raise unknown_name("gate", gate, GATE_LIMITS, where="those with settings")
            for name, value in settings.items():
                if wrong.is_full:
                    break
                with wrong.at(f"gates.{gate}.{name}"):
                    _require_limit(gate, name, value)
    wrong.raise_all()
    return GateLimits(**{name: value for each in gates.values() for name, value in each.items()})


def _require_limit(gate: str, name: str, value: object) -> None:
    if name not in GATE_LIMITS[gate]:
        raise unknown_name("setting", name, GATE_LIMITS[gate], where=f"gate {gate}")
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise UsageError(
            f"gates.{gate}.{name} is {value!r}; it must be a whole number of 0 or more, "
            "or null for no limit",
            code="bad_limit",
        )


def name_of(given: str | None, default: str) -> str:
    name = (given or shortened(default, LONGEST_NAME)).strip()
    if not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise UsageError(
            f"the name of a search is 1 to {LONGEST_NAME} printable characters", code="bad_name"
        )
    return name
