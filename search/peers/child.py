"""The process that times other people's kernels beside a winner. Started by bootstrap.py.

REQUEST is JSON (search/peers/compare.py writes it). REPLIES gets JSON lines: one when a peer begins
and one with its outcome, so that the parent can tell which peer a crash belongs to.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from greenfast.search.peers.offers import load_offers, pending, unavailable, write_row
from greenfast.search.text import one_line, shortened

if TYPE_CHECKING:
    from greenfast.search.peers.duel import Duel

LONGEST_WHY = 400  # characters


def main(request_file: Path, reply_file: Path) -> None:
    request = json.loads(request_file.read_text())
    with reply_file.open("a") as file:
        serve(request, lambda **row: write_row(file, **row))


def serve(request: dict[str, Any], reply: Callable[..., None]) -> None:
    """One reply for each peer and workload that is not skipped."""
    offers = load_offers(Path(request["peers"]))
    pairs = pending(request, offers)
    try:
        from greenfast.search.peers.duel import Duel

        duel = Duel(request["gpu"], request["l2_bytes"], request["deadline_s"])
    except ImportError as error:
        why = f"{error.name or 'a package'} is not installed for {request['python']}"
        for name, workload in pairs:
            reply(**unavailable(name, workload["name"], why))
        return
    with duel:
        for name, workload in pairs:
            reply(peer=name, workload=workload["name"], begin=True)
            reply(
                peer=name,
                workload=workload["name"],
                **outcome_of(offers, name, workload, duel, request),
            )


def outcome_of(
    offers: dict[str, Any],
    name: str,
    workload: dict[str, Any],
    duel: Duel,
    request: dict[str, Any],
) -> dict[str, Any]:
    """The outcome of one peer on one workload. An exception that it raises becomes its outcome.

    RuntimeError when the peer broke the CUDA context.
    """
    version = ""
    # PyTorch reports in warnings why it did not take a back end.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            scalars = {scalar["name"]: scalar["value"] for scalar in workload["scalars"]}
            offered = offers["offer"](name, workload["dims"], workload["options"], scalars)
            version = offered["version"]
            times = duel.time_in_turns(offered["run"], name, workload, request)
            return {"outcome": "ran", "version": version, **times}
        except ImportError as error:
            outcome, why = "unavailable", f"not installed: {_short(error)}"
        except ValueError as error:
            outcome, why = "not_comparable", _short(error)
        except Exception as error:
            duel.require_working()  # in a broken context every later peer would fail, too
            messages = [str(warning.message).partition(" (Triggered")[0] for warning in caught]
            hints = f" ({'; '.join(dict.fromkeys(messages))})" if messages else ""
            outcome = "unavailable"
            why = _short(f"{type(error).__name__}: {error}{hints}")
        return {"outcome": outcome, "version": version, "why": why}


def _short(text: object) -> str:
    return shortened(one_line(text), LONGEST_WHY)
