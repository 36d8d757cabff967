"""The peers that a kernel's folder offers, and the rows in which the child reports on them.

bootstrap.py also loads this file on a Python that is too old for greenfast, so it imports the
standard library only and nothing that Python 3.8 lacks.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TextIO


def load_offers(path: Path) -> dict[str, Any]:
    """The global names of a kernel folder's peers.py, among them NAMES and offer."""
    names: dict[str, Any] = {"__name__": "greenfast_peers", "__file__": str(path)}
    exec(compile(path.read_text("utf-8"), str(path), "exec"), names)
    return names


def pending(request: dict[str, Any], offers: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """(peer, workload) for every pair that the request does not skip."""
    skipped = {tuple(pair) for pair in request["skip"]}
    return [
        (name, workload)
        for workload in request["workloads"]
        for name in offers["NAMES"]
        if (name, workload["name"]) not in skipped
    ]


def unavailable(peer: str, workload: str, why: str, version: str = "") -> dict[str, Any]:
    """The row of a peer that cannot run here."""
    return {
        "peer": peer,
        "workload": workload,
        "outcome": "unavailable",
        "version": version,
        "why": why,
    }


def write_row(file: TextIO, **row: Any) -> None:
    """One line, written through at once: the process may die on what comes next."""
    file.write(json.dumps(row) + "\n")
    file.flush()
