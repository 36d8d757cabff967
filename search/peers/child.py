"""The process that times other people's kernels beside a winner: `python -m greenfast.search.peers.child REQUEST REPLIES`.

REQUEST is JSON (search/peers/compare.py writes it). Each line of REPLIES is a JSON object: for each peer one that says
that it begins and one that says what came of it, so that the parent knows whom a crash concerns.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

LONGEST_WHY = 400


def main(request_file: Path, reply_file: Path) -> None:
    request = json.loads(request_file.read_text())
    with reply_file.open("a") as file:

        def say(**row: Any) -> None:
            file.write(json.dumps(row) + "\n")
            file.flush()

        serve(request, say)


def serve(request: dict[str, Any], say) -> None:
    """One reply for each peer and workload that is not skipped."""
    offers = load_offers(Path(request["peers"]))
    skipped = {tuple(one) for one in request["skip"]}
    wanted = [
        (name, workload)
        for workload in request["workloads"]
        for name in offers["NAMES"]
        if (name, workload["name"]) not in skipped
    ]
    try:
        from greenfast.search.peers.duel import Duel

        duel = Duel(request["gpu"], request["l2_bytes"], request["deadline_s"])
    except ImportError as error:
        for name, workload in wanted:
            say(
                peer=name,
                workload=workload["name"],
                outcome="unavailable",
                version="",
                why=f"{error.name or 'a package'} is not installed for {request['python']}",
            )
        return
    with duel:
        for name, workload in wanted:
            say(peer=name, workload=workload["name"], begin=True)
            say(
                peer=name,
                workload=workload["name"],
                **one_peer(offers, name, workload, duel, request),
            )


def load_offers(path: Path) -> dict[str, Any]:
    """The names of the kernel folder's peers.py: NAMES and offer."""
    found: dict[str, Any] = {"__name__": "greenfast_peers", "__file__": str(path)}
    exec(compile(path.read_text("utf-8"), str(path), "exec"), found)
    return found


def one_peer(
    offers: dict[str, Any], name: str, workload: dict[str, Any], duel, request: dict[str, Any]
) -> dict[str, Any]:
    """What came of one peer on one workload; whatever it raises is its own."""
    version = ""
    with warnings.catch_warnings(
        record=True
    ) as heard:  # PyTorch says in warnings why a back end was not taken
        warnings.simplefilter("always")
        try:
            scalars = {scalar["name"]: scalar["value"] for scalar in workload["scalars"]}
            offered = offers["offer"](name, workload["dims"], workload["options"], scalars)
            version = offered["version"]
            return {
                "outcome": "ran",
                "version": version,
                **duel.fight(offered["run"], name, workload, request),
            }
        except ImportError as error:
            return {
                "outcome": "unavailable",
                "version": version,
                "why": f"not installed: {shortened(error)}",
            }
        except ValueError as error:
            return {"outcome": "not_comparable", "version": version, "why": shortened(error)}
        except Exception as error:
            duel.require_working()  # else every other peer would be blamed, too
            said = "; ".join(
                dict.fromkeys(str(one.message).partition(" (Triggered")[0] for one in heard)
            )
            return {
                "outcome": "unavailable",
                "version": version,
                "why": shortened(
                    f"{type(error).__name__}: {error}" + (f" ({said})" if said else "")
                ),
            }


def shortened(text: object) -> str:
    words = " ".join(str(text).split())
    return words if len(words) <= LONGEST_WHY else words[:LONGEST_WHY] + "..."


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
