"""How well modelled times agree with measured ones: rank correlation, order of pairs, spread."""

from __future__ import annotations

import math

from bench.results import Row

# By how far apart the model puts a pair: from, below.
FACTORS = ((1, 1.25), (1.25, 1.5), (1.5, 1.75), (1.75, 2), (2, 2.5), (2.5, 1e9))


def agreement(rows: list[Row], template: str) -> Row:
    """The summary of rows that have a modelled and a measured time."""
    modelled, measured = ([row[name] for row in rows] for name in ("modelled_us", "measured_us"))
    ratios = [time / model for model, time in zip(modelled, measured, strict=True)]
    return {
        "what": "modelled against measured",
        "template": template,
        "candidates": len(rows),
        "spearman": round(spearman(modelled, measured), 3),
        **spread(ratios),
    }


def misordered(times: list[tuple[float, float]]) -> list[Row]:
    """By the modelled factor between two candidates, the share of pairs measured the other way."""
    rows = []
    for low, high in FACTORS:
        pairs = [
            slow[1] < fast[1]
            for slow in times
            for fast in times
            if slow is not fast and low <= slow[0] / fast[0] < high
        ]
        rows.append(
            {
                "what": "pairs ordered wrongly",
                "modelled_ratio_from": low,
                "pairs": len(pairs),
                "share": round(sum(pairs) / max(1, len(pairs)), 4),
            }
        )
    return rows


def spread(ratios: list[float]) -> dict[str, float]:
    """The 5th, 50th and 95th percentile."""
    ordered = sorted(ratios)
    return {
        "ratio_p5": round(ordered[len(ordered) // 20], 2),
        "ratio_median": round(ordered[len(ordered) // 2], 2),
        "ratio_p95": round(ordered[-1 - len(ordered) // 20], 2),
    }


def spearman(first: list[float], second: list[float]) -> float:
    """The rank correlation of two lists of equal length, without correction for ties."""
    a, b = _ranks(first), _ranks(second)
    mean = (len(a) - 1) / 2
    covariance = sum((x - mean) * (y - mean) for x, y in zip(a, b, strict=True))
    return covariance / math.sqrt(sum((x - mean) ** 2 for x in a) * sum((y - mean) ** 2 for y in b))


def _ranks(values: list[float]) -> list[float]:
    ranks = [0.0] * len(values)
    for rank, position in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        ranks[position] = float(rank)
    return ranks
