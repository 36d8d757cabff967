"""The model and the mix of instructions against a GPU.

    python -m bench.model.model_check gpu OUT.json             with CuPy and a GPU: times, and
                                                               instructions by ncu
    python -m bench.model.model_check merge OUT.json           here: mixes, modelled times beside
                                                               them (instruction_mix)
    python -m bench.model.model_check searched DATA.sqlite3    here: modelled times beside those
                                                               in a GPU's database (model_check)
    python -m bench.model.model_check recorded FILE ...        the same for samples of recordings
                                                               (model_recorded)
    python -m bench.model.model_check atomics                  the same for stored candidates with
                                                               float atomics (model_atomics)

--save stores the result named in parentheses. The candidates of `gpu` are every fifth of those that
the model was fitted to (result gpu_check), and presets and random points of the template `mma`,
which it was not fitted to.
"""

from __future__ import annotations

import csv
import io
import math
import random
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench.command_line import add_save, require_gpu, script_parser
from bench.environment import publish
from bench.model.agreement import agreement, misordered, spread
from bench.model.launching import LoadedProblem, launch_us
from bench.model.modelled import WORKLOAD, modelled, sampled_candidate
from bench.results import RESULTS, ROOT, Row, read_json, read_result, result_names, write_json
from bench.session import open_session
from greenfast.db import convert
from greenfast.search.cores import usable_cores
from greenfast.search.devices.facts import device
from greenfast.search.errors import GreenfastError
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.oracle.cases import workload_case
from greenfast.search.oracle.problem import Problem, lay_out
from greenfast.search.oracle.reference import case_data
from greenfast.search.recordings import file
from greenfast.search.recordings.rules import time_us
from greenfast.search.render import RenderedSource, render
from greenfast.search.space.candidate import Candidate, Origin, OriginKind, preset_candidate
from greenfast.search.space.space import Space, resolve
from greenfast.search.targets.emulator.work import mixes_of, whole_mix
from greenfast.search.verdict import Timing

FITTED_PERIOD = 5  # of the candidates that the model was fitted to
FRESH = {"mma": 40}
SAMPLED = 120  # of each recording
METRICS = (
    "smsp__inst_executed.sum",
    "smsp__inst_executed_pipe_xu.sum",
    "smsp__inst_executed_pipe_lsu.sum",
    "smsp__inst_executed_pipe_alu.sum",
    "smsp__inst_executed_pipe_fma.sum",
)


def candidates(catalogue: Catalogue) -> Iterator[tuple[Candidate, RenderedSource, Problem]]:
    """Each candidate with its source and its problem on the workload."""
    kernel = catalogue.kernel("attention")
    case = workload_case(kernel.workload(WORKLOAD), 0)
    reference, compiled = case_data(kernel, case), kernel.workload(WORKLOAD).compile_time(kernel)
    fitted = [row for row in read_result("gpu_check")["rows"] if "candidate" in row]
    sample = [sampled_candidate(kernel.name, row) for row in fitted[::FITTED_PERIOD]]
    for name, count in FRESH.items():
        template = kernel.template(name)
        presets = [preset_candidate(template, preset.name, compiled) for preset in template.presets]
        space = Space(template, compiled, device("h200"))
        points = random.Random(31).sample(space.points, min(count, len(space.points)))
        sample += presets + [
            Candidate(kernel.name, name, point, Origin(OriginKind.SAMPLED)) for point in points
        ]
    for candidate in dict.fromkeys(sample):
        template = kernel.template(candidate.template)
        point = resolve(template, candidate.parameters, compiled, device("h200"))
        source = render(kernel, template, point, catalogue.include_dirs)
        yield (
            candidate,
            source,
            lay_out(kernel, template, point, case, reference, optional_outputs=False),
        )


def on_gpu(out: Path) -> None:
    """Times in this process, then one launch of each candidate in a child of ncu."""
    require_gpu()
    import cupy

    rows = []
    for candidate, source, laid_out in candidates(Catalogue.from_environment()):
        row = {
            "template": candidate.template,
            "parameters": candidate.values(),
            "source": source.digest,
        }
        rows.append(row)
        try:
            loaded = LoadedProblem(source, laid_out)
            row["registers"] = loaded.registers
            loaded.launch()
            row["measured_us"] = launch_us(cupy, loaded.launch)
        except Exception as error:  # a candidate that does not load must not end the run
            row["failed"] = f"{type(error).__name__}: {str(error)[:200]}"
        print(len(rows), candidate.template, row.get("measured_us", row.get("failed")), flush=True)
    add_counts(rows)
    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    write_json(out, {"device": name, "rows": rows})
    timed, counted = (sum(key in row for row in rows) for key in ("measured_us", "counts"))
    print(f"{timed} timed, {counted} counted")


def add_counts(rows: list[Row]) -> None:
    """Add ncu's counters to the rows of the sources that its child launched."""
    with tempfile.TemporaryDirectory() as folder:
        order = Path(folder) / "order.json"
        child = [sys.executable, "-m", "bench.model.model_check", "launch", str(order)]
        process = subprocess.run(
            ["ncu", "--csv", "--metrics", ",".join(METRICS), *child],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
            check=False,
        )
        launched = read_json(order) if order.exists() else []
    by_source = {row["source"]: row for row in rows}
    for number, counts in _counts(process.stdout).items():
        if number < len(launched):
            by_source[launched[number]]["counts"] = counts
    if not any("counts" in row for row in rows):
        print("ncu gave no counters:", process.stdout[-1500:])


def launch_each(order: Path) -> None:
    """In ncu's child: one launch of each candidate that has a single launch."""
    import cupy

    launched = []
    for _, source, laid_out in candidates(Catalogue.from_environment()):
        if len(laid_out.launches) == 1:
            try:
                LoadedProblem(source, laid_out).launch()
                launched.append(source.digest)
            except Exception as error:
                print(type(error).__name__, error)
    cupy.cuda.Device().synchronize()
    write_json(order, launched)


def _counts(text: str) -> dict[int, dict[str, float]]:
    """The metrics of each launch from ncu's CSV, whose other lines are skipped."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    by_launch: dict[int, dict[str, float]] = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines))):
        if not row.get("Kernel Name", "").startswith("attention"):
            continue
        try:
            value = float(row["Metric Value"].replace(",", ""))
            by_launch.setdefault(int(row["ID"]), {})[row["Metric Name"]] = value
        except (KeyError, ValueError):
            continue
    return dict(enumerate(by_launch[launch] for launch in sorted(by_launch)))


def merge(gpu_path: Path, *, save: bool) -> None:
    """Instruction mixes and modelled times beside the GPU's."""
    measured, rows = read_json(gpu_path), []
    by_source = {row["source"]: row for row in measured["rows"]}
    with open_session(
        "emulator:h200",
        prefix="mix",
        catalogue=Catalogue.from_environment(),
        workers=usable_cores(),
        compilers=1,
    ) as session:
        for _, source, laid_out in candidates(session.catalogue):
            row = by_source.get(source.digest)
            if row is None or "failed" in row:
                continue
            cubin = session.toolchain.compile(source, "sm_90")
            program = session.target.load(source, cubin)
            (timing,) = session.target.measure(program, cubin, [laid_out])
            blocks = math.prod(laid_out.launches[0].grid)
            mix = whole_mix(laid_out, mixes_of(laid_out, cubin, blocks), blocks)
            rows.append({**row, **_modelled_fields(timing), "mix": dict(mix)})
    about = [{"what": "device", "device": measured["device"]}, *_agreement(rows), *_counted(rows)]
    publish("instruction_mix", [*about, *rows], save=save)


def _modelled_fields(timing: Timing) -> Row:
    return {"modelled_us": round(timing.time_median_us, 3), "limits": dict(timing.limits)}


def searched(database: Path, *, save: bool) -> None:
    """All timed trials of the workload whose source the present templates still render."""
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as opened:
        trials = opened.execute(
            "select trials.candidate, source_digest, min(time_median_us), plan from trials "
            "join searches on searches.key = trials.search_key "
            "where time_kind = 'measured' group by source_digest"
        ).fetchall()
    rows = []
    for document, source, measured_us, plan in trials:
        candidate = convert.candidate_of(document)
        of_workload = convert.plan_of(plan).workloads == (WORKLOAD,)
        if candidate.kernel == "attention" and of_workload and _still_made(candidate, source):
            rows.append(
                {
                    "candidate": candidate.digest,
                    "source": source,
                    "template": candidate.template,
                    "parameters": candidate.values(),
                    "measured_us": measured_us,
                }
            )
    for row, timing in zip(rows, modelled(rows), strict=True):
        row.update(_modelled_fields(timing), mix=dict(timing.mix))
    trials_row = {"what": "trials with a measured time", "trials": len(trials)}
    summary = [{**trials_row, "still made": len(rows)}, *_agreement(rows)]
    publish("model_check", [*summary, *rows], save=save)


def recorded(paths: list[Path], *, save: bool) -> None:
    """A random sample of the timed candidates of each recording, on its own workload."""
    summary, rows = [], []
    for path in paths:
        recording = file.read(path)
        (workload,) = recording.workload_names()
        timed = [row for row in recording.rows if row.times]
        sample = [
            {
                "workload": workload,
                "template": row.template,
                "source": row.source_digest,
                "parameters": dict(recording.parameters(row)),
                "measured_us": round(time_us(row.times[0]), 3),
            }
            for row in random.Random(7).sample(timed, min(SAMPLED, len(timed)))
        ]
        for row, timing in zip(sample, modelled(sample, workload), strict=True):
            row.update(_modelled_fields(timing))
        summary.append({"what": "recording", "name": recording.heading.name, "timed": len(timed)})
        summary += [{**row, "workload": workload} for row in _agreement(sample)]
        rows += sample
    publish("model_recorded", summary + rows, save=save)


def atomics(*, save: bool) -> None:
    """Stored candidates with atomic sums, in shared memory (wmma) or over a cluster's (mma)."""
    rows = []
    for workload, measured in _measured_atomics().items():
        for row, timing in zip(measured, modelled(measured, workload), strict=True):
            row.update(_modelled_fields(timing))
        rows += measured
    publish("model_atomics", _with_and_without_atomics(rows) + rows, save=save)


def _with_and_without_atomics(rows: list[Row]) -> list[Row]:
    """Measured times over modelled ones, with and without the model's charge for float atomics."""
    summary = []
    for template in sorted({row["template"] for row in rows}):
        of_template = [row for row in rows if row["template"] == template]
        for what, left_out in (
            ("modelled against measured", 0),
            ("modelled without float atomics against measured", 1),
        ):
            ratios = [
                row["measured_us"]
                / (row["modelled_us"] - left_out * row["limits"]["float atomics"])
                for row in of_template
            ]
            counts = {"what": what, "template": template, "candidates": len(ratios)}
            summary.append({**counts, **spread(ratios)})
    return summary


def _measured_atomics() -> dict[str, list[Row]]:
    """By workload: candidates that the lessons' comparison and the searches measured."""
    rows = [
        {
            "workload": row["workload"],
            "template": row["changed"].partition(":")[0],
            "source": row["changed_figures"]["source_digest"],
            "parameters": row["changed_parameters"],
            "measured_us": np.median(row["changed_us"]).item(),
        }
        for row in read_result("h200/attention_lessons")["rows"]
        if "changed_us" in row
    ]
    folder = "h200/attention_searches"
    for name in result_names(RESULTS / folder):
        rows += [
            {
                "workload": search["workload"],
                **{key: trial[key] for key in ("template", "source", "parameters")},
                "measured_us": trial["us"],
            }
            for search in read_result(f"{folder}/{name}")["rows"]
            for trial in search["trials"]
        ]
    by_workload: dict[str, list[Row]] = {}
    for row in rows:
        if row["measured_us"] and "atomic" in row["parameters"].values():
            by_workload.setdefault(row["workload"], []).append(row)
    return by_workload


def _still_made(candidate: Candidate, source: str) -> bool:
    catalogue = Catalogue.from_environment()
    kernel = catalogue.kernel(candidate.kernel)
    template = kernel.template(candidate.template)
    try:
        compiled = kernel.workload(WORKLOAD).compile_time(kernel)
        point = resolve(template, candidate.parameters, compiled, device("h200"))
    except GreenfastError:
        return False
    rendered = render(kernel, template, point, catalogue.include_dirs)
    return isinstance(rendered, RenderedSource) and rendered.digest == source


def _agreement(rows: list[Row]) -> list[Row]:
    """The agreement of each template, and of pairs of those that the model was not fitted to."""
    templates = sorted({row["template"] for row in rows})
    summary = [
        agreement([row for row in rows if row["template"] == template], template)
        for template in templates
    ]
    fresh = [row for row in rows if row["template"] in FRESH]
    return summary + misordered([(row["modelled_us"], row["measured_us"]) for row in fresh])


def _counted(rows: list[Row]) -> list[Row]:
    """The mix's warp instructions over the GPU's: all, and special functions."""
    summary = []
    for name, metric in (("all", METRICS[0]), ("special", METRICS[1])):
        ratios = [
            (sum(row["mix"].values()) if name == "all" else row["mix"].get(name, 0))
            / row["counts"][metric]
            for row in rows
            if row.get("counts", {}).get(metric)
        ]
        if ratios:
            summary.append(
                {
                    "what": "instructions of the mix over those counted by ncu",
                    "class": name,
                    "candidates": len(ratios),
                    **spread(ratios),
                }
            )
    return summary


def main() -> None:
    parser = script_parser(__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, argument in (("gpu", "OUT.json"), ("launch", "ORDER.json")):
        commands.add_parser(name).add_argument("path", type=Path, metavar=argument)
    for name, argument in (("merge", "OUT.json"), ("searched", "DATA.sqlite3")):
        command = commands.add_parser(name)
        command.add_argument("path", type=Path, metavar=argument)
        add_save(command)
    recordings = commands.add_parser("recorded")
    recordings.add_argument("paths", type=Path, nargs="+", metavar="FILE")
    add_save(recordings)
    add_save(commands.add_parser("atomics"))
    options = parser.parse_args()
    match options.command:
        case "gpu":
            on_gpu(options.path)
        case "launch":
            launch_each(options.path)
        case "merge":
            merge(options.path, save=options.save)
        case "searched":
            searched(options.path, save=options.save)
        case "recorded":
            recorded(options.paths, save=options.save)
        case "atomics":
            atomics(save=options.save)


if __name__ == "__main__":
    main()
