"""The model against times of an H200 by template and mask: do its blocks that see fewer keys cost less?

python bench/model/model_masks.py            here: modelled times beside those of the searches that are kept
                                       (bench/results/h200/attention_searches); --save keeps model_masks.json
python bench/model/model_masks.py gpu OUT.json    on a machine with a GPU, 3 minutes: times random candidates of workloads that no
                                       search was kept of: causal, grouped heads, odd lengths, and odd causal ones
python bench/model/model_masks.py merge OUT.json      here: both together; --save keeps model_masks.json
"""

from __future__ import annotations

import json
import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.model.gpu_check import DEADLINE_S, _spearman
from greenfast.search.cores import usable_cores
from greenfast.search.devices.facts import device
from greenfast.search.errors import GreenfastError
from greenfast.search.gates import GateLimits
from greenfast.search.gates.performance import bound_of
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.kernels.spec import KernelSpec, Workload
from greenfast.search.loop.evaluate import EvaluationContext
from greenfast.search.oracle.cases import workload_case
from greenfast.search.oracle.problem import Problem, lay_out
from greenfast.search.oracle.reference import case_data
from greenfast.search.render import RenderedSource
from greenfast.search.space.candidate import Candidate, Origin, OriginKind
from greenfast.search.space.space import Space, resolve
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.targets.base import Target
from greenfast.search.toolchain import Cubin, Toolchain

Row = dict[str, Any]

SEARCHES = Path(__file__).resolve().parents[1] / "results" / "h200" / "attention_searches"
SEARCHED = {
    "mission_bf16": 8,
    "mission_causal_bf16": 8,
    "mission_512_causal_bf16": 8,
    "long_bf16": 4,
    "long_causal_bf16": 8,
}  # candidates of each template
# Named here only: (heads of keys, length, mask). B=2, H=8, D=64.
DRAWN = {
    "causal": (8, 512, "causal_top_left"),
    "grouped_causal": (2, 512, "causal_bottom_right"),
    "odd": (8, 501, "none"),
    "odd_causal": (8, 501, "causal_top_left"),
}
DRAWN_OF_EACH = 12
GPU_S = 170.0
SEED = 1024


def drawn_workload(kernel: KernelSpec, name: str) -> Workload:
    heads, length, mask = DRAWN[name]
    changed = {"B": 2, "H": 8, "H_kv": heads, "S_q": length, "S_kv": length, "D": 64}
    like = kernel.workload("mission")
    return replace(
        like,
        name=name,
        title=name,
        dims=tuple(changed.items()),
        options=tuple({**dict(like.options), "mask": mask}.items()),
    )


def drawn(kernel: KernelSpec) -> Iterator[tuple[Workload, Candidate]]:
    """Templates and workloads in turn, so that a run that ends early has some of each."""
    rng = random.Random(SEED)
    spaces: dict[tuple[str, str], list] = {}
    for _ in range(DRAWN_OF_EACH):
        for name in DRAWN:
            workload = drawn_workload(kernel, name)
            for template in kernel.templates:
                key = (template.name, dict(workload.options)["mask"])
                if key not in spaces:
                    spaces[key] = Space(
                        template, workload.compile_time(kernel), device("h200")
                    ).points
                point = rng.choice(spaces[key])
                yield (
                    workload,
                    Candidate(kernel.name, template.name, point, Origin(OriginKind.SAMPLED)),
                )


class Models:
    """Compiles candidates and lays their problems out; `target` times them or models their times."""

    def __init__(self, folder: Path, which: str) -> None:
        self.catalogue = Catalogue([REPOSITORY_TEMPLATES])
        self.kernel = self.catalogue.kernel("attention")
        self.toolchain = Toolchain(folder, usable_cores())
        self.target: Target = open_target(
            which,
            TargetSettings(
                folder, self.catalogue.include_dirs, usable_cores(), run_deadline_s=DEADLINE_S
            ),
        )
        self.target.prepare()

    def timed(self, workload: Workload, candidate: Candidate) -> Row:
        """A row with the time, or with why there is none."""
        row: Row = {
            "workload": workload.name,
            "mask": dict(workload.options).get("mask", "none"),
            "template": candidate.template,
            "parameters": candidate.values(),
        }
        compiled = workload.compile_time(self.kernel)
        context = EvaluationContext(
            self.kernel,
            compiled,
            (workload,),
            self.target,
            self.toolchain,
            self.catalogue.include_dirs,
            GateLimits(),
            SEED,
        )
        source = context.render(candidate)
        if not isinstance(source, RenderedSource):
            return {**row, "failed": source.message}
        row["source"] = source.digest
        cubin = self.toolchain.compile(source, self.target.device.arch)
        if not isinstance(cubin, Cubin):
            return {**row, "failed": cubin.sentence}
        if any(
            entry.spill_bytes for entry in cubin.entries
        ):  # searches refuse those before they time them
            return {**row, "failed": "spills"}
        answers = self.target.measure(
            self.target.load(source, cubin), cubin, [self._problem(workload, candidate)]
        )
        if not isinstance(answers, tuple):
            return {**row, "failed": answers.sentence}
        return {
            **row,
            "us": answers[0].time_median_us,
            "bound_us": bound_of(answers[0]),
            "note": answers[0].note,
        }

    def _problem(self, workload: Workload, candidate: Candidate) -> Problem:
        template, case = self.kernel.template(candidate.template), workload_case(workload, SEED)
        point = resolve(template, candidate.parameters, workload.compile_time(self.kernel))
        reference = (
            self.target.case_data(self.kernel, case)
            if self.target.measures
            else case_data(self.kernel, case)
        )
        return lay_out(self.kernel, template, point, case, reference, optional_outputs=False)

    def close(self) -> None:
        self.toolchain.close()
        self.target.close()


def on_gpu(out: Path) -> None:
    """Times until `GPU_S` are over. What is not valid, spills or fails says so in its row."""
    rows, end = [], time.monotonic() + GPU_S
    with tempfile.TemporaryDirectory() as folder:
        models = Models(Path(folder), "cuda:0")
        for workload, candidate in drawn(models.kernel):
            if time.monotonic() > end:
                break
            try:
                rows.append(models.timed(workload, candidate))
            except GreenfastError as error:
                rows.append(
                    {
                        "workload": workload.name,
                        "template": candidate.template,
                        "failed": str(error),
                    }
                )
            print(
                len(rows),
                workload.name,
                candidate.template,
                rows[-1].get("us", rows[-1].get("failed")),
                flush=True,
            )
        identity = dict(models.target.identity())
        models.close()
    out.write_text(json.dumps({"target": identity, "rows": rows}, indent=1) + "\n")


def searched() -> Iterator[Row]:
    """A random sample of what searches timed."""
    rng = random.Random(SEED)
    for workload, count in SEARCHED.items():
        (search,) = json.loads((SEARCHES / f"{workload}.json").read_text())["rows"]
        for template in ("mma", "wmma"):
            timed = [
                trial for trial in search["trials"] if trial["template"] == template and trial["us"]
            ]
            for trial in rng.sample(timed, min(count, len(timed))):
                yield {
                    "workload": workload,
                    "template": template,
                    "parameters": trial["parameters"],
                    "source": trial["source"],
                    "us": trial["us"],
                }


def compared(measured: list[Row]) -> list[Row]:
    """The rows with their modelled times."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        models = Models(Path(folder), "emulator:h200")
        for row in measured:
            name = row["workload"]
            workload = (
                drawn_workload(models.kernel, name)
                if name in DRAWN
                else models.kernel.workload(name)
            )
            candidate = Candidate(
                models.kernel.name,
                row["template"],
                tuple(row["parameters"].items()),
                Origin(OriginKind.SAMPLED),
            )
            here = models.timed(workload, candidate)
            if "failed" in here or not here["source"].startswith(row["source"]):
                sys.exit(
                    f"{name} {row['template']} {row['parameters']}: {here.get('failed', 'another source now')}"
                )
            rows.append(
                {
                    **here,
                    "us": round(row["us"], 3),
                    "modelled_us": round(here["us"], 3),
                    "modelled_over_measured": round(here["us"] / row["us"], 3),
                }
            )
            print(
                rows[-1]["workload"],
                row["template"],
                rows[-1]["us"],
                rows[-1]["modelled_us"],
                file=sys.stderr,
                flush=True,
            )
        models.close()
    return rows


def bands(rows: list[Row]) -> list[Row]:
    """By template and mask, and by template and workload."""
    found = []
    for what in ("mask", "workload"):
        groups: dict[tuple[str, str], list[Row]] = {}
        for row in rows:
            groups.setdefault((row["template"], row[what]), []).append(row)
        for (template, group), members in sorted(groups.items()):
            found.append(
                {
                    "what": f"modelled over measured, by {what}",
                    "template": template,
                    what: group,
                    **band(members),
                }
            )
    return found


def band(rows: list[Row]) -> Mapping[str, Any]:
    ratios = [row["modelled_over_measured"] for row in rows]
    spearman = (
        _spearman([row["modelled_us"] for row in rows], [row["us"] for row in rows])
        if len(rows) > 3
        else math.nan
    )
    return {
        "candidates": len(rows),
        "min": min(ratios),
        "median": round(statistics.median(ratios), 3),
        "max": max(ratios),
        "spearman": round(spearman, 3) if math.isfinite(spearman) else None,
        "below_bound": sum(row["modelled_us"] < row["bound_us"] for row in rows),
    }


def publish(measured: list[Row]) -> None:
    from bench.environment import publish as publish_result

    rows = compared(measured)
    publish_result("model_masks", bands(rows) + rows)


if __name__ == "__main__":
    match [word for word in sys.argv[1:] if word != "--save"]:
        case ["gpu", path]:
            on_gpu(Path(path))
        case ["merge", path]:
            publish(
                [
                    *searched(),
                    *(row for row in json.loads(Path(path).read_text())["rows"] if "us" in row),
                ]
            )
        case []:
            publish(list(searched()))
        case _:
            sys.exit(__doc__)
