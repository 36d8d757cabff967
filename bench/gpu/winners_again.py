"""Each published winner once more through all gates, by its stored command, on fresh seeds.

    python -m bench.gpu.winners_again OUT.json [--target cuda:0]

A winner has to stay correct when the checks grow; its row holds the verdict of the present gates.
Rows in OUT.json of this target and of the kernel's present files are kept, and the next run
continues. Exits 1 if a winner fails a gate.
"""

from __future__ import annotations

import json
import secrets
import shlex
import time
from pathlib import Path

from bench.command_line import require_gpu, run_greenfast, script_parser
from bench.results import Row, read_json, read_result, write_json
from greenfast.search.digest import digest
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue

KEPT = (
    "verdict",
    "stage",
    "reason",
    "sentence",
    "time_median_us",
    "time_mode",
    "ratio_to_baseline",
    "source_digest",
)


def main() -> int:
    parser = script_parser(__doc__)
    parser.add_argument("out", type=Path, metavar="OUT.json")
    parser.add_argument("--target", default="cuda:0")
    options = parser.parse_args()
    if options.target.startswith("cuda"):
        require_gpu()
    kernel_digest = digest(Catalogue([REPOSITORY_TEMPLATES]).kernel("attention"))
    stored = read_json(options.out)["rows"] if options.out.is_file() else []
    rows = [row for row in stored if row["kernel_digest"] == kernel_digest]
    done = {(row["workload"], row["target"]) for row in rows}
    for winner in read_result("h200/attention_winners")["rows"]:
        if (winner["workload"], options.target) in done:
            continue
        rows.append({**again(winner, options.target), "kernel_digest": kernel_digest})
        print(json.dumps(rows[-1]), flush=True)
        environment = {"date": time.strftime("%Y-%m-%d", time.gmtime())}
        write_json(options.out, {"environment": environment, "rows": rows})
    return 0 if all(row["same_source"] and row["right"] for row in rows) else 1


def again(winner: Row, target: str) -> Row:
    """The winner's trial on `target` with a new seed."""
    seed = secrets.randbits(31)
    command = winner["command"].replace("--target cuda:0", f"--target {target}")
    words = shlex.split(command)[1:]
    process = run_greenfast(*words, "--seed", str(seed), "--json", check=False)
    try:
        trial = json.loads(process.stdout)
    except ValueError:
        trial = {"sentence": process.stderr.strip()[-300:]}
    gates = {name: gate["outcome"] for name, gate in (trial.get("gates") or {}).items()}
    return {
        "workload": winner["workload"],
        "target": target,
        "seed": seed,
        **{name: trial.get(name) for name in KEPT},
        "gates": gates,
        "right": gates.get("correctness") == "passed" and gates.get("safety") == "passed",
        "same_source": trial.get("source_digest") == winner["source_digest"],
    }


if __name__ == "__main__":
    raise SystemExit(main())
