"""Selecting trials by parameter values and by text, as conditions of a query."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import or_

from greenfast.db.convert import storable
from greenfast.db.models import TrialRecord
from greenfast.search.errors import UsageError

MOST_FILTERS = 20


@dataclass(frozen=True)
class ParameterFilter:
    """Trials whose parameter `name` has the value that people write as `text`."""

    name: str
    text: str

    @classmethod
    def parse(cls, written: str) -> ParameterFilter:
        """`tile_m=64`; UsageError `bad_filter` for a text without both parts."""
        name, separator, text = written.partition("=")
        if not (name.strip() and separator and text.strip()):
            raise UsageError(
                f"{written[:80]!r} selects no parameter value",
                code="bad_filter",
                mend="write NAME=VALUE, such as tile_m=64",
            )
        return cls(name.strip(), text.strip())

    def values(self) -> Iterator[Any]:
        """The typed values that the text can mean: 64, true, or itself."""
        yield self.text
        for number in (int, float):
            try:
                yield number(self.text)
            except ValueError:
                continue
        if self.text.lower() in ("true", "false"):
            yield self.text.lower() == "true"

    def __str__(self) -> str:
        return f"{self.name}={self.text}"


def parameter_filters(written: Iterable[str]) -> tuple[ParameterFilter, ...]:
    """Filters from `name=value` texts; UsageError `bad_filter`."""
    parsed = tuple(ParameterFilter.parse(text) for text in written if text.strip())
    if len(parsed) > MOST_FILTERS:
        raise UsageError(
            f"{len(parsed)} parameter values are selected",
            code="bad_filter",
            mend=f"select at most {MOST_FILTERS}",
        )
    return parsed


def conditions(parameters: Sequence[ParameterFilter], text: str | None) -> list[Any]:
    """The conditions. `text` is looked for in sentences, reasons, presets, templates."""
    result: list[Any] = [_has_value(parameter) for parameter in parameters]
    for word in storable(text or "").split():
        result.append(
            or_(
                *(
                    column.icontains(word, autoescape=True)
                    for column in (
                        TrialRecord.sentence,
                        TrialRecord.reason,
                        TrialRecord.fault_code,
                        TrialRecord.template,
                        TrialRecord.preset,
                        TrialRecord.candidate_digest,
                        TrialRecord.source_digest,
                    )
                )
            )
        )
    return result


def _has_value(parameter: ParameterFilter) -> Any:
    """The stored candidate holds the pair among its parameters, which come before its origin."""
    return or_(
        *(
            TrialRecord.candidate.like(f'%{_escaped(pair)}%"origin":{{%', escape="\\")
            for pair in _pairs(parameter)
        )
    )


def _pairs(parameter: ParameterFilter) -> list[str]:
    """`["tile_m",64]` for each value that the text can mean, as candidates are stored."""
    pairs = (
        json.dumps([parameter.name, value], separators=(",", ":")) for value in parameter.values()
    )
    return list(dict.fromkeys(pairs))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
