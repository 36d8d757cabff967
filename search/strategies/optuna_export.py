"""A search's trials as Optuna studies, for optuna-dashboard and other tools.

There is one study per template, named SEARCH/TEMPLATE. Its objective is the time in us. A wrong
candidate is a failed trial with its reason; a fault is left out, because it says nothing about the
candidate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState

from greenfast.search.errors import Fault, UsageError


@dataclass(frozen=True)
class ExportedTrial:
    """A trial as a study stores it."""

    number: int
    parameters: Mapping[str, Any]
    time_us: float | None  # None: not timed, or wrong
    facts: Mapping[str, Any]  # user attributes


def export_study(url: str, name: str, trials: Sequence[ExportedTrial]) -> int:
    """Write one study; returns the number of its trials.

    UsageError `study_exists` for a name that is taken, `bad_storage` for a URL that is none.
    """
    values: dict[str, list[Any]] = {}
    for trial in trials:
        for parameter, value in trial.parameters.items():
            known = values.setdefault(parameter, [])
            if not any(type(value) is type(each) and value == each for each in known):
                known.append(value)
    distributions = {
        parameter: CategoricalDistribution(_ordered(choices))
        for parameter, choices in values.items()
    }
    try:
        study = optuna.create_study(storage=url, study_name=name, direction="minimize")
    except optuna.exceptions.DuplicatedStudyError as error:
        raise UsageError(
            f"{url} has a study {name!r} already",
            code="study_exists",
            mend="write to another storage",
        ) from error
    except optuna.exceptions.StorageInternalError as error:
        raise Fault(f"{url} cannot be written", code="storage_unwritable") from error
    except Exception as error:  # SQLAlchemy's errors for a URL or driver; none is ours to import
        raise UsageError(
            f"{url!r} is not a storage that Optuna can write: {type(error).__name__}",
            code="bad_storage",
            mend="write a URL such as sqlite:///study.db",
        ) from error
    study.add_trials([_frozen(trial, distributions) for trial in trials])
    return len(trials)


def _frozen(trial: ExportedTrial, distributions: dict[str, CategoricalDistribution]) -> FrozenTrial:
    state = TrialState.COMPLETE if trial.time_us is not None else TrialState.FAIL
    moment = datetime.now()
    return FrozenTrial(
        number=trial.number,
        state=state,
        value=trial.time_us,
        datetime_start=moment,
        datetime_complete=moment,
        params=dict(trial.parameters),
        distributions={name: distributions[name] for name in trial.parameters},
        user_attrs={"greenfast:number": trial.number, **trial.facts},
        system_attrs={},
        intermediate_values={},
        trial_id=trial.number,
    )


def _ordered(values: Sequence[Any]) -> list[Any]:
    numbers = all(type(value) in (int, float) for value in values)
    return sorted(values) if numbers else list(values)
