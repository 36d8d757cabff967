"""Twins with a fault of a pipeline that pass both gates, with the reason for each."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bench.results import Row


@dataclass(frozen=True)
class Known:
    """A kind of survivor: texts that its line, the next line and the candidate must contain."""

    verdict: str  # "equivalent" | "missed"
    operator: str
    before: str
    candidate: str  # a regular expression over `template name=value name=value`
    why: str
    following: str = ""


KNOWN: tuple[Known, ...] = ()


def explained(row: Row) -> Row:
    """A survivor's row with its verdict and why; `missed` where nothing here explains it."""
    values = {**row["compiled"], **row["parameters"]}
    name = f"{row['template']} " + "".join(f"{key}={value} " for key, value in values.items())
    for known in KNOWN:
        if (
            known.operator == row["operator"]
            and known.before in row["before"]
            and known.following in row["following"]
            and re.search(known.candidate, name)
        ):
            return {**row, "verdict": known.verdict, "why": known.why}
    return {**row, "verdict": "missed", "why": "not explained"}
