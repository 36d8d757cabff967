"""The winners of the searches beside other people's kernels, on a GPU.

    python -m bench.gpu.peers OUT.json [WORKLOAD ...]
    python -m bench.gpu.peers --add

Each winner of bench/results/h200/attention_winners.json, or of the workloads named, passes the
gates on cuda:0 once more and is timed in turns with every installed peer, with a hot L2, in three
fresh processes. Rows are written as they come, with all samples.

--add needs no GPU: it adds the peers of the result h200/peers that were not installed when a search
ran to that search's row, with the date of their timing, and names the row's best peer anew. Times
that the search measured itself stay.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path

from bench.command_line import script_parser
from bench.results import RESULTS, Row, finite, read_result, result_names, write_json, write_result
from bench.session import Session, open_session
from greenfast.search.loop.evaluate import evaluate, prepare
from greenfast.search.peers.compare import compare_peers
from greenfast.search.space.candidate import Candidate, Origin, OriginKind, complete_parameters
from greenfast.search.verdict import Accepted, Green, performance_of

KERNEL, MODE = "attention", "hot"
FOLDER = RESULTS / "h200"
PROCESSES = 3


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("out", type=Path, nargs="?", metavar="OUT.json")
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD")
    parser.add_argument("--add", action="store_true", help="add stored peers to stored searches")
    options = parser.parse_args()
    if options.add:
        add_to_searches(FOLDER)
    elif options.out is None:
        parser.error("OUT.json is missing")
    else:
        compare_winners(options.out, options.workloads)


def compare_winners(out: Path, workloads: list[str]) -> None:
    winners = [
        row
        for row in read_result("attention_winners", FOLDER)["rows"]
        if not workloads or row["workload"] in workloads
    ]
    rows: list[Row] = []
    with open_session("cuda:0", prefix="peers") as session:
        for winner in winners:
            rows += beside(winner, session)
            write_json(out, {"environment": session.environment(), "rows": rows})


def beside(winner: Row, session: Session) -> list[Row]:
    """One winner and its comparison with each peer; no rows if it no longer passes the gates."""
    kernel = session.catalogue.kernel(KERNEL)
    workload, template = kernel.workload(winner["workload"]), kernel.template(winner["template"])
    context = session.context(kernel, workload, mode=MODE)
    parameters = complete_parameters(template, winner["parameters"], context.compiled)
    candidate = Candidate(KERNEL, template.name, parameters, Origin(OriginKind.SEEDED))
    verdict, began = evaluate(candidate, context).verdict, time.perf_counter()
    if not isinstance(verdict, (Accepted, Green)):
        print(f"{workload.name}: its winner no longer passes the gates: {verdict}", flush=True)
        return []
    subject = prepare(candidate, context)
    peers = compare_peers(subject, PROCESSES)
    for peer in peers:
        print(f"  {peer.outcome:15} {peer.workload} {peer.sentence}", flush=True)
    return [
        {
            "what": "winner",
            "workload": workload.name,
            "template": template.name,
            "parameters": dict(candidate.parameters),
            "source_digest": subject.source.digest,
            "us": performance_of(verdict).timings[0].time_median_us,
            "comparing_s": round(time.perf_counter() - began, 2),
        },
        *({"what": "peer", **finite(asdict(peer))} for peer in peers),
    ]


def add_to_searches(folder: Path) -> None:
    """Add later peers to the rows of the searches in `folder`."""
    later = read_result("peers", folder)
    date = later["environment"]["date"]
    for name in result_names(folder / "attention_searches"):
        search = read_result(f"attention_searches/{name}", folder)
        rows = [with_later(row, later["rows"], date) for row in search["rows"]]
        write_result(f"attention_searches/{name}", {**search, "rows": rows}, folder)


def with_later(row: Row, later: list[Row], date: str) -> Row:
    """A search's row with the peers that were timed later beside its winner's very source."""
    digest = row["winner"]["source_digest"]
    same_winner = any(
        item["what"] == "winner" and item["source_digest"] == digest for item in later
    )
    peers = {peer["name"]: peer for peer in row["peers"]}
    for item in later if same_winner else ():
        if item["what"] != "peer" or item["workload"] != row["workload"]:
            continue
        timed_before = peers.get(item["name"], {}).get("outcome") == "timed"
        if item["outcome"] == "timed" and not timed_before:
            peers[item["name"]] = _search_peer(item, date)
    timed = [peer for peer in peers.values() if peer["outcome"] == "timed"]
    best = min(timed, key=lambda peer: peer["time_median_us"], default=None)
    return {
        **row,
        "peers": list(peers.values()),
        "best_peer": best and best["name"],
        "ratio_to_best_peer": best and best["ratio"],
        "interval": best and best["interval"],
    }


def _search_peer(peer: Row, date: str) -> Row:
    """A timed peer in the form of a search's row (bench/gpu/attention_rows.py)."""
    comparison = peer["comparison"]
    names = ("name", "version", "outcome", "sentence", "time_median_us")
    return {
        **{name: peer[name] for name in names},
        "ratio": comparison["ratio"],
        "interval": [comparison["ratio_low"], comparison["ratio_high"]],
        "decision": comparison["decision"],
        "timed_later": date,
        "samples": [
            {
                "seed": process["seed"],
                "ours": process["timings"][0]["samples"],
                "theirs": process["timings"][0]["baseline_samples"],
            }
            for process in comparison["processes"]
        ],
    }


if __name__ == "__main__":
    main()
