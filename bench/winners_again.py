"""Each published winner once more through all gates, as its command in attention_winners.json does it, on fresh seeds.

    python bench/winners_again.py OUT.json

What a search found stays right when the checks grow: says for each winner what today's gates say of it.
"""

from __future__ import annotations

import json
import secrets
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from search.catalogue import REPOSITORY_TEMPLATES, Catalogue
from search.digest import digest

WINNERS = ROOT / "bench" / "results" / "h200" / "attention_winners.json"
COMMAND = (sys.executable, "-c", "from app.cli import main; main()")
KEPT = ("verdict", "stage", "reason", "sentence", "time_median_us", "time_mode", "ratio_to_baseline", "source_digest")


def main() -> int:
    kernel, rows = Catalogue([REPOSITORY_TEMPLATES]).kernel("attention"), []
    for winner in json.loads(WINNERS.read_text())["rows"]:
        rows.append(again(winner))
        print(json.dumps(rows[-1]), flush=True)
        environment = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "kernel_digest": digest(kernel)}
        Path(sys.argv[1]).write_text(json.dumps({"environment": environment, "rows": rows}) + "\n")
    return 0 if all(one["same_source"] and one["right"] for one in rows) else 1


def again(winner: dict[str, Any]) -> dict[str, Any]:
    seed, words = secrets.randbits(31), shlex.split(winner["command"])[1:]
    found = subprocess.run([*COMMAND, *words, "--seed", str(seed), "--json"], cwd=ROOT, capture_output=True, text=True)
    try:
        said = json.loads(found.stdout)
    except ValueError:
        said = {"sentence": found.stderr.strip()[-300:]}
    gates = {name: gate["outcome"] for name, gate in (said.get("gates") or {}).items()}
    return {"workload": winner["workload"], "seed": seed, **{name: said.get(name) for name in KEPT}, "gates": gates,
            "right": gates.get("correctness") == "passed" and gates.get("safety") in ("passed", "skipped"),
            "same_source": said.get("source_digest") == winner["source_digest"]}


if __name__ == "__main__":
    raise SystemExit(main())
