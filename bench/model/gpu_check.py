"""Random candidates on a GPU and on the emulator: are they correct, and how do times compare?

    python -m bench.model.gpu_check emulator OUT.json      here: verdicts and modelled times
    python -m bench.model.gpu_check gpu OUT.json           with CuPy and a GPU: results and times
    python -m bench.model.gpu_check merge EMULATOR.json GPU.json [--save]   prints the comparison
    python -m bench.model.gpu_check remodel [--save]       the stored comparison, modelled again

The GPU's part needs CuPy, NumPy, Jinja2 and ml_dtypes. Its times are a first look (one graph of
launches, warm L2) and not taken by the protocol that accepts candidates.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

from bench.command_line import add_save, require_gpu, script_parser
from bench.environment import publish
from bench.model.agreement import agreement, misordered
from bench.model.launching import LoadedProblem, launch_us
from bench.model.modelled import WORKLOAD, modelled
from bench.results import Row, read_json, read_result, write_json
from bench.session import open_session
from greenfast.search.cores import usable_cores
from greenfast.search.devices.facts import device
from greenfast.search.gates.correctness import compare
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.kernels.workloads import Items
from greenfast.search.loop.evaluate import evaluate
from greenfast.search.oracle.cases import derived_cases, workload_case
from greenfast.search.oracle.problem import lay_out
from greenfast.search.oracle.reference import case_data
from greenfast.search.render import RenderedSource, render
from greenfast.search.space.candidate import Candidate, Origin, OriginKind, preset_candidate
from greenfast.search.space.space import Space, resolve
from greenfast.search.targets.base import Execution
from greenfast.search.verdict import performance_of, verdict_name

RANDOM = {"wmma": 60, "scalar": 40}
KEPT = (
    "candidate",
    "source",
    "template",
    "parameters",
    "verdict",
    "modelled_us",
    "limited_by",
    "measured_us",
    "registers",
    "checks",
)


def candidates(kernel: KernelSpec, compiled: Items) -> Iterator[Candidate]:
    """Every preset, then random valid points; the same on both machines."""
    for name, count in RANDOM.items():
        template = kernel.template(name)
        drawn = [preset_candidate(template, preset.name, compiled) for preset in template.presets]
        points = Space(template, compiled, device("h200")).points
        drawn += [
            Candidate(kernel.name, name, point, Origin(OriginKind.SAMPLED))
            for point in random.Random(20).sample(points, count)
        ]
        yield from dict.fromkeys(drawn)


def on_emulator(out: Path) -> None:
    """Evaluate each candidate on the emulator."""
    rows = []
    with open_session(
        "emulator:h200",
        prefix="check",
        catalogue=Catalogue.from_environment(),
        workers=usable_cores(),
        compilers=2,
    ) as session:
        kernel = session.catalogue.kernel("attention")
        context = session.context(kernel, kernel.workload(WORKLOAD))
        for candidate in candidates(kernel, context.compiled):
            evaluated = evaluate(candidate, context)
            evidence = performance_of(evaluated.verdict)
            timing = evidence.timings[0] if evidence else None
            row = {
                "candidate": candidate.digest,
                "source": evaluated.source.digest,
                "template": candidate.template,
                "parameters": candidate.values(),
                "verdict": verdict_name(evaluated.verdict),
                "sentence": getattr(evaluated.verdict, "sentence", ""),
                "modelled_us": timing.time_median_us if timing else None,
                "limited_by": timing.limited_by if timing else None,
                "detail": dict(timing.detail) if timing else None,
            }
            rows.append(row)
            print(len(rows), row["template"], row["verdict"], row["modelled_us"], flush=True)
    write_json(out, rows)


def on_gpu(out: Path) -> None:
    """Check each candidate's outputs and time it."""
    require_gpu()
    import cupy

    catalogue, rows = Catalogue.from_environment(), []
    kernel = catalogue.kernel("attention")
    compiled = kernel.workload(WORKLOAD).compile_time(kernel)
    for candidate in candidates(kernel, compiled):
        template = kernel.template(candidate.template)
        point = resolve(template, candidate.parameters, compiled, device("h200"))
        source = render(kernel, template, point, catalogue.include_dirs)
        row = gpu_row(kernel, candidate, compiled, source)
        rows.append(row)
        print(len(rows), candidate.template, row.get("measured_us"), row["failed"][:1], flush=True)
    write_json(
        out,
        {
            "device": cupy.cuda.runtime.getDeviceProperties(0)["name"].decode(),
            "cupy": cupy.__version__,
            "rows": rows,
            "runtime": cupy.cuda.runtime.runtimeGetVersion(),
            "driver": cupy.cuda.runtime.driverGetVersion(),
        },
    )


def gpu_row(
    kernel: KernelSpec, candidate: Candidate, compiled: Items, source: RenderedSource
) -> Row:
    """Comparisons of the outputs in every check, and the time. Errors go to `failed`."""
    row: Row = {"candidate": candidate.digest, "source": source.digest, "failed": [], "checks": 0}
    template, started = kernel.template(candidate.template), time.perf_counter()
    point = resolve(template, candidate.parameters, compiled, device("h200"))
    workload = workload_case(kernel.workload(WORKLOAD), 0)
    try:
        for case in (*derived_cases(kernel, compiled, point.tiles, 0), workload):
            laid_out = lay_out(kernel, template, point, case, case_data(kernel, case))
            loaded = LoadedProblem(source, laid_out)
            row.setdefault("registers", loaded.registers)
            row.setdefault("compile_s", round(time.perf_counter() - started, 3))
            execution = Execution(laid_out, "device", loaded.outputs(), None)
            checks, _ = compare(SimpleNamespace(kernel=kernel), execution)
            row["checks"] += len(checks)
            row["failed"] += [check.sentence for check in checks if not check.passed][:1]
        row["measured_us"] = launch_us(loaded.cupy, loaded.launch)
    except Exception as error:  # a candidate that fails must not end the run
        row["failed"].append(f"{type(error).__name__}: {str(error)[:300]}")
    return row


def remodel(*, save: bool) -> None:
    """Model the stored candidates again and keep their measurements."""
    stored = read_result("gpu_check")["rows"]
    rows = [row for row in stored if "candidate" in row]
    for row, timing in zip(rows, modelled(rows), strict=True):
        row |= {
            "modelled_us": timing.time_median_us,
            "limited_by": timing.limited_by,
            "limits": dict(timing.limits),
            "mix": dict(timing.mix),
        }
    about = [row for row in stored if row.get("what") in ("device", "agreement")]
    publish("gpu_check", about + comparison(rows) + rows, save=save)


def merge(emulator_path: Path, gpu_path: Path, *, save: bool) -> None:
    """Join the rows of both machines and summarise them."""
    emulated, gpu = {row["candidate"]: row for row in read_json(emulator_path)}, read_json(gpu_path)
    rows = [{**emulated[row["candidate"]], **row} for row in gpu["rows"]]
    green = [row for row in rows if row["verdict"] == "green"]
    summary = [
        {"what": "device", **{name: gpu[name] for name in ("device", "cupy", "runtime", "driver")}},
        {
            "what": "agreement",
            "candidates": len(rows),
            "checks_on_gpu": sum(row["checks"] for row in rows),
            "green_on_emulator": len(green),
            "right_on_gpu": sum(not row["failed"] for row in rows),
            "green_but_wrong_on_gpu": sum(bool(row["failed"]) for row in green),
        },
        *comparison(rows),
    ]
    stored = [{name: row[name] for name in KEPT} for row in rows]
    publish("gpu_check", summary + stored, save=save)


def comparison(rows: list[Row]) -> list[Row]:
    """The agreement of each template and of all, and of pairs."""
    timed = [row for row in rows if row.get("measured_us") and row["modelled_us"]]
    summary = [
        agreement([row for row in timed if template in ("all", row["template"])], template)
        for template in (*RANDOM, "all")
    ]
    return summary + misordered([(row["modelled_us"], row["measured_us"]) for row in timed])


def main() -> None:
    parser = script_parser(__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("emulator", "gpu"):
        commands.add_parser(name).add_argument("out", type=Path, metavar="OUT.json")
    merging = commands.add_parser("merge")
    merging.add_argument("emulator", type=Path, metavar="EMULATOR.json")
    merging.add_argument("gpu", type=Path, metavar="GPU.json")
    add_save(merging)
    add_save(commands.add_parser("remodel"))
    options = parser.parse_args()
    match options.command:
        case "emulator":
            on_emulator(options.out)
        case "gpu":
            on_gpu(options.out)
        case "merge":
            merge(options.emulator, options.gpu, save=options.save)
        case "remodel":
            remodel(save=options.save)


if __name__ == "__main__":
    main()
