"""Each published winner once more through all gates, as its command in attention_winners.json does it, on fresh seeds.

    python -m bench.gpu.winners_again OUT.json [--target cuda:0]

What a search found stays right when the checks grow: says for each winner what today's gates say of it. Rows that OUT.json
holds of the target and of the kernel's files as they are stay; the next run goes on. Exits 1 when one is not right.
"""

from __future__ import annotations

import argparse
import json
import secrets
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

from greenfast.search.digest import digest
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue

WINNERS = ROOT / "bench" / "results" / "h200" / "attention_winners.json"
COMMAND = (sys.executable, "-c", "from greenfast.app.cli.main import main; main()")
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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--target", default="cuda:0")
    chosen, kernel = (
        parser.parse_args(),
        digest(Catalogue([REPOSITORY_TEMPLATES]).kernel("attention")),
    )
    found = json.loads(chosen.out.read_text())["rows"] if chosen.out.is_file() else []
    rows = [one for one in found if one["kernel_digest"] == kernel]
    done = {(row["workload"], row["target"]) for row in rows}
    for winner in json.loads(WINNERS.read_text())["rows"]:
        if (winner["workload"], chosen.target) in done:
            continue
        rows.append({**again(winner, chosen.target), "kernel_digest": kernel})
        print(json.dumps(rows[-1]), flush=True)
        chosen.out.write_text(
            json.dumps(
                {"environment": {"date": time.strftime("%Y-%m-%d", time.gmtime())}, "rows": rows}
            )
            + "\n"
        )
    return 0 if all(row["same_source"] and row["right"] for row in rows) else 1


def again(winner: dict[str, Any], target: str) -> dict[str, Any]:
    seed, words = (
        secrets.randbits(31),
        shlex.split(winner["command"].replace("--target cuda:0", f"--target {target}"))[1:],
    )
    found = subprocess.run(
        [*COMMAND, *words, "--seed", str(seed), "--json"], cwd=ROOT, capture_output=True, text=True
    )
    try:
        said = json.loads(found.stdout)
    except ValueError:
        said = {"sentence": found.stderr.strip()[-300:]}
    gates = {name: gate["outcome"] for name, gate in (said.get("gates") or {}).items()}
    return {
        "workload": winner["workload"],
        "target": target,
        "seed": seed,
        **{name: said.get(name) for name in KEPT},
        "gates": gates,
        "right": gates.get("correctness") == "passed" and gates.get("safety") == "passed",
        "same_source": said.get("source_digest") == winner["source_digest"],
    }


if __name__ == "__main__":
    raise SystemExit(main())
