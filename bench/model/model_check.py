"""The model and the mix of instructions against a real GPU.

    python bench/model/model_check.py gpu OUT.json       on a machine with CuPy and a GPU: times, and instructions by ncu
    python bench/model/model_check.py merge OUT.json     here: mixes and modelled times beside them; --save keeps instruction_mix.json
    python bench/model/model_check.py searched DATA.sqlite3      here: modelled times beside those that searches measured, kept
                                                   in the database of a machine with a GPU; --save keeps model_check.json
    python bench/model/model_check.py recorded FILE ...  here: the same for samples of recordings; --save keeps model_recorded.json
    python bench/model/model_check.py atomics            here: the same for the candidates of kept searches and lessons that add floats
                                                   atomically; --save keeps model_atomics.json

Candidates of `gpu`: every fifth of those that the model was fitted to (bench/results/gpu_check.json), and presets and random
points of the template `mma`, which it was not fitted to.
"""

from __future__ import annotations

import csv
import io
import json
import math
import random
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy

from bench.model.gpu_check import RESULTS, _misordered, _spearman, _spread, _time
from greenfast.search.cores import usable_cores
from greenfast.search.devices.facts import device
from greenfast.search.errors import GreenfastError
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.oracle.cases import workload_case
from greenfast.search.oracle.problem import Scalar, lay_out
from greenfast.search.oracle.reference import case_data
from greenfast.search.render import render
from greenfast.search.space.candidate import Candidate, Origin, OriginKind, preset_candidate
from greenfast.search.space.space import Space, resolve

FITTED_TO = 5  # every so many
FRESH = {"mma": 40}
WORKLOAD = "mission"
SAMPLED = 120  # of each recording
ON_H200 = RESULTS.parent / "h200"
METRICS = (
    "smsp__inst_executed.sum",
    "smsp__inst_executed_pipe_xu.sum",
    "smsp__inst_executed_pipe_lsu.sum",
    "smsp__inst_executed_pipe_alu.sum",
    "smsp__inst_executed_pipe_fma.sum",
)


def candidates(catalogue):
    """(candidate, source, its problem on the workload)."""
    kernel = catalogue.kernel("attention")
    case = workload_case(kernel.workload(WORKLOAD), 0)
    reference, compiled = case_data(kernel, case), kernel.workload(WORKLOAD).compile_time(kernel)
    rows = [row for row in json.loads(RESULTS.read_text())["rows"] if "candidate" in row][
        ::FITTED_TO
    ]
    found = [
        Candidate(
            kernel.name,
            row["template"],
            tuple(row["parameters"].items()),
            Origin(OriginKind.SAMPLED),
        )
        for row in rows
    ]
    for name, count in FRESH.items():
        template = kernel.template(name)
        presets = [preset_candidate(template, preset.name, compiled) for preset in template.presets]
        space = Space(template, compiled, device("h200"))
        points = random.Random(31).sample(space.points, min(count, len(space.points)))
        found += presets + [
            Candidate(kernel.name, name, one, Origin(OriginKind.SAMPLED)) for one in points
        ]
    for candidate in dict.fromkeys(found):
        template = kernel.template(candidate.template)
        point = resolve(template, candidate.parameters, compiled)
        source = render(kernel, template, candidate, point, catalogue.include_dirs)
        yield (
            candidate,
            source,
            lay_out(kernel, template, point, case, reference, optional_outputs=False),
        )


def on_gpu(out: Path) -> None:
    """Times in this process, then the same launches once each in a child of ncu."""
    import cupy

    rows = []
    for candidate, source, made in candidates(Catalogue.from_environment()):
        row = {
            "template": candidate.template,
            "parameters": candidate.values(),
            "source": source.digest,
        }
        rows.append(row)
        try:
            launch, row["registers"] = _loaded(cupy, source, made)
            launch()
            row["measured_us"] = _time(cupy, launch)
        except Exception as error:  # a candidate that does not load says so in its row
            row["failed"] = f"{type(error).__name__}: {str(error)[:200]}"
        print(len(rows), candidate.template, row.get("measured_us", row.get("failed")), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        order = Path(folder) / "order.json"
        answered = subprocess.run(
            [
                "ncu",
                "--csv",
                "--metrics",
                ",".join(METRICS),
                sys.executable,
                __file__,
                "launch",
                str(order),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        launched = json.loads(order.read_text()) if order.exists() else []
    for number, counts in _counts(answered.stdout).items():
        if number < len(launched):
            next(one for one in rows if one["source"] == launched[number])["counts"] = counts
    if not any("counts" in one for one in rows):
        print("ncu gave nothing:", answered.stdout[-1500:])
    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    out.write_text(json.dumps({"device": name, "rows": rows}))
    print(
        f"{sum('measured_us' in one for one in rows)} timed, {sum('counts' in one for one in rows)} counted"
    )


def launch_each(order: Path) -> None:
    """What ncu looks at: one launch of each candidate's entry; those of several launches are left out."""
    import cupy

    launched = []
    for _, source, made in candidates(Catalogue.from_environment()):
        if len(made.launches) == 1:
            try:
                _loaded(cupy, source, made)[0]()
                launched.append(source.digest)
            except Exception as error:
                print(type(error).__name__, error)
    cupy.cuda.Device().synchronize()
    order.write_text(json.dumps(launched))


def _loaded(cupy, source, made):
    """A call that launches the problem, and nothing else on the GPU; the registers of its first entry."""
    module = cupy.RawModule(
        code=source.text, backend="nvrtc", options=("--std=c++17", "-I/usr/local/cuda/include")
    )
    images = {tensor.name: cupy.asarray(tensor.image) for tensor in made.tensors}
    images |= {
        workspace.name: cupy.asarray(numpy.zeros(max(1, workspace.bytes), numpy.uint8))
        for workspace in made.workspaces
    }
    calls = []
    for one in made.launches:
        function = module.get_function(one.entry)
        function.max_dynamic_shared_size_bytes = one.smem_dynamic_bytes
        calls.append(
            (
                function,
                one,
                tuple(
                    _argument(cupy, images, argument)
                    for argument in (made.arguments if one.arguments is None else one.arguments)
                ),
            )
        )

    def launch() -> None:
        for function, one, arguments in calls:
            function(one.grid, one.block, arguments, shared_mem=one.smem_dynamic_bytes)

    return launch, calls[0][0].num_regs


def _argument(cupy, images, one):
    if one is None:
        return cupy.uint64(0)
    if isinstance(one, Scalar):
        return {"int32": cupy.int32, "int64": cupy.int64, "float32": cupy.float32}[one.dtype](
            one.value
        )
    return images[one.name]


def _counts(text: str) -> dict[int, dict[str, float]]:
    """By launch: metric -> value, from ncu's CSV; its other lines are passed over."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    found: dict[int, dict[str, float]] = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines))):
        if not row.get("Kernel Name", "").startswith("attention"):
            continue
        try:
            found.setdefault(int(row["ID"]), {})[row["Metric Name"]] = float(
                row["Metric Value"].replace(",", "")
            )
        except (KeyError, ValueError):
            continue
    return dict(enumerate(found[one] for one in sorted(found)))


def merge(gpu_path: Path) -> None:
    from bench.environment import publish
    from greenfast.search.targets import TargetSettings, open_target
    from greenfast.search.targets.emulator.work import mixes_of, whole_mix
    from greenfast.search.toolchain import Toolchain

    measured = json.loads(gpu_path.read_text())
    by_source = {one["source"]: one for one in measured["rows"]}
    catalogue = Catalogue.from_environment()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        toolchain = Toolchain(Path(folder), 1)
        target = open_target(
            "emulator:h200", TargetSettings(Path(folder), catalogue.include_dirs, usable_cores())
        )
        for candidate, source, made in candidates(catalogue):
            row = by_source.get(source.digest)
            if row is None or "failed" in row:
                continue
            cubin = toolchain.compile(source, "sm_90")
            (timing,) = target.measure(target.load(source, cubin), cubin, [made])
            every = math.prod(made.launches[0].grid)
            rows.append(
                {
                    **row,
                    "modelled_us": round(timing.time_median_us, 3),
                    "limits": dict(timing.limits),
                    "mix": dict(whole_mix(made, mixes_of(made, cubin, every), every)),
                }
            )
        toolchain.close()
    publish(
        "instruction_mix",
        [
            {"what": "device", "device": measured["device"]},
            *_agreement(rows),
            *_counted(rows),
            *rows,
        ],
    )


def searched(database: Path) -> None:
    """All trials of the workload with a measured time whose source is still made by the templates that are here."""
    from bench.environment import publish
    from bench.model.gpu_check import modelled
    from greenfast.db import convert

    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as opened:
        trials = opened.execute(
            "select trials.candidate, source_digest, min(time_median_us), plan from trials "
            "join searches on searches.key = trials.search_key "
            "where time_kind = 'measured' group by source_digest"
        ).fetchall()
    rows = []
    for document, source, time_us, plan in trials:
        candidate, searched_for = convert.candidate_of(document), convert.plan_of(plan)
        if (
            candidate.kernel == "attention"
            and searched_for.workloads == (WORKLOAD,)
            and _still_made(candidate, source)
        ):
            rows.append(
                {
                    "candidate": candidate.digest,
                    "source": source,
                    "template": candidate.template,
                    "parameters": candidate.values(),
                    "measured_us": time_us,
                }
            )
    for row, timing in zip(rows, modelled(rows)):
        row |= {
            "modelled_us": round(timing.time_median_us, 3),
            "limits": dict(timing.limits),
            "mix": dict(timing.mix),
        }
    publish(
        "model_check",
        [
            {"what": "trials with a measured time", "trials": len(trials), "still made": len(rows)},
            *_agreement(rows),
            *rows,
        ],
    )


def recorded(paths: list[Path]) -> None:
    """A random sample of the timed candidates of each recording, of whatever workload it is."""
    from bench.environment import publish
    from bench.model.gpu_check import modelled
    from greenfast.search.recordings import file
    from greenfast.search.recordings.rules import time_us

    summary, rows = [], []
    for path in paths:
        recording = file.read(path)
        (workload,) = recording.workload_names()
        timed = [one for one in recording.rows if one.times]
        chosen = [
            {
                "workload": workload,
                "template": one.template,
                "source": one.source_digest,
                "parameters": dict(recording.parameters(one)),
                "measured_us": round(time_us(one.times[0]), 3),
            }
            for one in random.Random(7).sample(timed, min(SAMPLED, len(timed)))
        ]
        for row, timing in zip(chosen, modelled(chosen, workload)):
            row |= {"modelled_us": round(timing.time_median_us, 3), "limits": dict(timing.limits)}
        summary.append({"what": "recording", "name": recording.heading.name, "timed": len(timed)})
        summary += [{**one, "workload": workload} for one in _agreement(chosen)]
        rows += chosen
    publish("model_recorded", summary + rows)


def atomics() -> None:
    """All whose sums are added up atomically, in shared memory (wmma) or over a cluster's (mma), by workload."""
    from bench.environment import publish
    from bench.model.gpu_check import modelled

    rows = []
    for workload, measured in _measured_atomics().items():
        for row, timing in zip(measured, modelled(measured, workload)):
            row |= {"modelled_us": round(timing.time_median_us, 3), "limits": dict(timing.limits)}
        rows += measured
    publish("model_atomics", _with_and_without_atomics(rows) + rows)


def _with_and_without_atomics(rows: list[dict]) -> list[dict]:
    """Measured over modelled, and over what is modelled without their charge, which is added to the rest."""
    found = []
    for template in sorted({row["template"] for row in rows}):
        mine = [row for row in rows if row["template"] == template]
        for what, left_out in (
            ("modelled against measured", 0),
            ("modelled without float atomics against measured", 1),
        ):
            ratios = [
                one["measured_us"]
                / (one["modelled_us"] - left_out * one["limits"]["float atomics"])
                for one in mine
            ]
            found.append(
                {"what": what, "template": template, "candidates": len(ratios), **_spread(ratios)}
            )
    return found


def _measured_atomics() -> dict[str, list[dict]]:
    """By workload: what searches and the comparison of one lesson measured."""
    found: dict[str, list[dict]] = {}

    def keep(
        workload: str, template: str, parameters: dict, source: str, measured_us: float | None
    ) -> None:
        if measured_us and "atomic" in parameters.values():
            found.setdefault(workload, []).append(
                {
                    "workload": workload,
                    "template": template,
                    "source": source,
                    "parameters": parameters,
                    "measured_us": measured_us,
                }
            )

    for row in json.loads((ON_H200 / "attention_lessons.json").read_text())["rows"]:
        keep(
            row["workload"],
            row["changed"].partition(":")[0],
            row["changed_parameters"],
            row["changed_figures"]["source_digest"],
            numpy.median(row["changed_us"]).item(),
        )
    for path in sorted((ON_H200 / "attention_searches").glob("*.json")):
        for search in json.loads(path.read_text())["rows"]:
            for trial in search["trials"]:
                keep(
                    search["workload"],
                    trial["template"],
                    trial["parameters"],
                    trial["source"],
                    trial["us"],
                )
    return found


def _still_made(candidate: Candidate, source: str) -> bool:
    catalogue = Catalogue.from_environment()
    kernel = catalogue.kernel(candidate.kernel)
    template, compiled = (
        kernel.template(candidate.template),
        kernel.workload(WORKLOAD).compile_time(kernel),
    )
    try:
        point = resolve(template, candidate.parameters, compiled)
        return (
            getattr(
                render(kernel, template, candidate, point, catalogue.include_dirs), "digest", ""
            )
            == source
        )
    except GreenfastError:
        return False


def _agreement(rows: list[dict]) -> list[dict]:
    found = []
    for template in sorted({row["template"] for row in rows}):
        both = [
            (row["modelled_us"], row["measured_us"]) for row in rows if row["template"] == template
        ]
        found.append(
            {
                "what": "modelled against measured",
                "template": template,
                "candidates": len(both),
                "spearman": round(_spearman([one for one, _ in both], [one for _, one in both]), 3),
                **_spread([time / model for model, time in both]),
            }
        )
    return found + _misordered(
        [(row["modelled_us"], row["measured_us"]) for row in rows if row["template"] in FRESH]
    )


def _counted(rows: list[dict]) -> list[dict]:
    """The mix's warp instructions over the GPU's: all, and special functions."""
    found = []
    for name, metric in (("all", METRICS[0]), ("special", METRICS[1])):
        ratios = [
            (sum(row["mix"].values()) if name == "all" else row["mix"].get(name, 0))
            / row["counts"][metric]
            for row in rows
            if row.get("counts", {}).get(metric)
        ]
        if ratios:
            found.append(
                {
                    "what": "instructions of the mix over those counted by ncu",
                    "class": name,
                    "candidates": len(ratios),
                    **_spread(ratios),
                }
            )
    return found


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["gpu", path, *_]:
            on_gpu(Path(path))
        case ["launch", path]:
            launch_each(Path(path))
        case ["searched", path, *_]:
            searched(Path(path))
        case ["recorded", *paths]:
            recorded([Path(one) for one in paths if one != "--save"])
        case ["atomics", *_]:
            atomics()
        case ["merge", path, *_]:
            merge(Path(path))
        case _:
            sys.exit(__doc__)
