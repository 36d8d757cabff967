"""The demands of a request on its strategy, refused if it cannot meet them; and the objectives
of a trial beside its time."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from greenfast.search.errors import UsageError, unknown_name
from greenfast.search.kernels.spec import TemplateSpec
from greenfast.search.strategies import (
    DEFAULT_MODELLED,
    SEVERAL_OBJECTIVES,
    STRATEGIES,
    WITH_MODELLED_TIMES,
    WITH_POPULATION,
    WITHOUT_CONDITIONS,
)
from greenfast.search.strategies.objectives import OBJECTIVES, TIME, Values
from greenfast.search.verdict import CorrectnessEvidence, PtxasEvidence, Stage, Verdict, gate_result

MOST_MODELLED = 1_000  # points of each template
SMALLEST_POPULATION, LARGEST_POPULATION = 4, 1_000
LEAST_ERROR = 1e-12  # of which the logarithm is taken


def objectives_of(requested: tuple[str, ...] | None, strategy: str) -> tuple[str, ...]:
    """The objectives in their own order; UsageError for a choice that `strategy` cannot do."""
    if requested is None:
        return (TIME,)
    for name in requested:
        if name not in OBJECTIVES:
            raise unknown_name("objective", name, OBJECTIVES)
    if len(set(requested)) != len(requested):
        raise UsageError("an objective is named twice", code="repeated_objective")
    if TIME not in requested:
        raise UsageError(
            "the objectives of a search must include time: its best is the fastest correct "
            "candidate",
            code="bad_objectives",
            mend=f"write {','.join((TIME, *requested))}",
        )
    if len(requested) > 1:
        _require_able(strategy, "several objectives", SEVERAL_OBJECTIVES)
    return tuple(name for name in OBJECTIVES if name in requested)


def population_of(requested: int | None, strategy: str, trials: int | None) -> int | None:
    """The population; UsageError if it makes no sense."""
    if requested is None:
        return None
    _require_able(strategy, "a population", WITH_POPULATION)
    most = min(LARGEST_POPULATION, trials or LARGEST_POPULATION)
    if not SMALLEST_POPULATION <= requested <= most:
        raise UsageError(
            f"population must be between {SMALLEST_POPULATION} and {LARGEST_POPULATION:,}, and at "
            f"most the number of trials; got {requested}"
            + (f" with {trials:,} trials" if trials else ""),
            code="bad_population",
        )
    return requested


def modelled_of(requested: int | None, strategy: str, family: str) -> int:
    """The points of each template whose times are modelled for the strategy; UsageError if they
    make no sense."""
    if requested is None:
        return DEFAULT_MODELLED if family == "cuda" and strategy in WITH_MODELLED_TIMES else 0
    if not 0 <= requested <= MOST_MODELLED:
        raise UsageError(
            f"modelled must be between 0 and {MOST_MODELLED:,} points of each template; "
            f"got {requested}",
            code="bad_modelled",
        )
    if requested:
        _require_able(strategy, "modelled times", WITH_MODELLED_TIMES)
        if family != "cuda":
            raise UsageError(
                "only a search on GPUs uses modelled times beside its own",
                code="bad_modelled",
                mend="leave modelled out, or choose a target such as cuda:0",
            )
    return requested


def require_conditions(strategy: str, templates: Iterable[TemplateSpec]) -> None:
    """UsageError if a parameter exists under a condition and the strategy cannot do that."""
    for template in templates:
        for parameter in template.parameters:
            if parameter.when is not None and strategy in WITHOUT_CONDITIONS:
                able = [name for name in STRATEGIES if name not in WITHOUT_CONDITIONS]
                subject = f"conditional parameters ({parameter.name} of {template.name})"
                _require_able(strategy, subject, able)


def _require_able(strategy: str, subject: str, able: Collection[str]) -> None:
    if strategy not in able:
        raise UsageError(
            f"strategy {strategy} cannot search with {subject}",
            code="strategy_cannot",
            mend=f"strategies that can: {', '.join(sorted(able))}",
        )


def others_of(verdict: Verdict, objectives: tuple[str, ...]) -> Values | None:
    """The objectives after the time, as a strategy learns them; None if one is not known."""
    figures = _figures(verdict)
    values = [figures[name] for name in objectives if name != TIME]
    known = tuple(value for value in values if value is not None)
    return known if len(known) == len(values) else None


def _figures(verdict: Verdict) -> dict[str, float | None]:
    ptxas, checks = (
        result.evidence if result is not None else None
        for result in (gate_result(verdict, Stage.PTXAS), gate_result(verdict, Stage.CORRECTNESS))
    )
    registers = shared = error = None
    if isinstance(ptxas, PtxasEvidence):
        registers = float(ptxas.registers)
        shared = (ptxas.smem_static_bytes + ptxas.smem_dynamic_bytes) / 1024
    if isinstance(checks, CorrectnessEvidence) and checks.max_abs_error is not None:
        error = math.log(max(checks.max_abs_error, LEAST_ERROR))
    return {"registers": registers, "shared_memory": shared, "error": error}
