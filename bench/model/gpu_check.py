"""Random candidates on a real GPU, beside the emulator: are they right there too, and how do times compare?

    python bench/model/gpu_check.py emulator OUT.json          here: verdicts and modelled times
    python bench/model/gpu_check.py gpu OUT.json               on a machine with CuPy and a GPU: results and measured times
    python bench/model/gpu_check.py merge EMULATOR.json GPU.json     prints the comparison; --save keeps it in bench/results/
    python bench/model/gpu_check.py remodel                    the kept comparison with modelled times as they are now

The GPU's part needs CuPy, NumPy, Jinja2 and ml_dtypes. Times are a first look (one graph of launches, warm L2), not
the protocol that accepts candidates.
"""

from __future__ import annotations

import json
import math
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from greenfast.search.cores import usable_cores
from greenfast.search.devices.facts import device
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.oracle.cases import derived_cases, workload_case
from greenfast.search.oracle.problem import Scalar, Tensor, lay_out
from greenfast.search.oracle.reference import case_data
from greenfast.search.render import render
from greenfast.search.space.candidate import Candidate, Origin, OriginKind, preset_candidate
from greenfast.search.space.space import Space, resolve

RESULTS = Path(__file__).resolve().parents[1] / "results" / "gpu_check.json"
WORKLOAD = "mission"
RANDOM = {"wmma": 60, "scalar": 40}
LAUNCHES = 40
DEADLINE_S = 300.0  # of an emulated run: a few blocks of the longest workloads take minutes


def candidates(catalogue):
    """Every preset, then random valid points; the same on both machines."""
    kernel = catalogue.kernel("attention")
    compiled = kernel.workload(WORKLOAD).compile_time(kernel)
    for template in kernel.templates:
        found = [preset_candidate(template, preset.name, compiled) for preset in template.presets]
        points = Space(template, compiled, device("h200")).points
        found += [
            Candidate(kernel.name, template.name, point, Origin(OriginKind.SAMPLED))
            for point in random.Random(20).sample(points, RANDOM[template.name])
        ]
        for candidate in dict.fromkeys(found):
            yield (
                kernel,
                template,
                candidate,
                resolve(template, candidate.parameters, compiled),
                compiled,
            )


def on_emulator(out: Path) -> None:
    from greenfast.search.gates import GateLimits
    from greenfast.search.loop.evaluate import EvaluationContext, evaluate
    from greenfast.search.targets import TargetSettings, open_target
    from greenfast.search.toolchain import Toolchain
    from greenfast.search.verdict import performance_of, verdict_name

    catalogue = Catalogue.from_environment()
    with tempfile.TemporaryDirectory() as folder:
        toolchain = Toolchain(Path(folder), 2)
        target = open_target(
            "emulator:h200", TargetSettings(Path(folder), catalogue.include_dirs, usable_cores())
        )
        rows = []
        for kernel, _, candidate, _, compiled in candidates(catalogue):
            context = EvaluationContext(
                kernel,
                compiled,
                (kernel.workload(WORKLOAD),),
                target,
                toolchain,
                catalogue.include_dirs,
                GateLimits(max_spill_bytes=None),
                0,
            )
            done = evaluate(candidate, context)
            timing = performance_of(done.verdict)
            rows.append(
                {
                    "candidate": candidate.digest,
                    "source": done.source.digest,
                    "template": candidate.template,
                    "parameters": candidate.values(),
                    "verdict": verdict_name(done.verdict),
                    "sentence": getattr(done.verdict, "sentence", ""),
                    "modelled_us": timing.timings[0].time_median_us if timing else None,
                    "limited_by": timing.timings[0].limited_by if timing else None,
                    "detail": dict(timing.timings[0].detail) if timing else None,
                }
            )
            print(
                len(rows),
                candidate.template,
                rows[-1]["verdict"],
                rows[-1]["modelled_us"],
                flush=True,
            )
        toolchain.close()
    out.write_text(json.dumps(rows))


def on_gpu(out: Path) -> None:
    from types import SimpleNamespace

    import cupy

    from greenfast.search.gates.correctness import compare
    from greenfast.search.targets.base import Execution

    catalogue = Catalogue.from_environment()
    rows = []
    for kernel, template, candidate, point, compiled in candidates(catalogue):
        source = render(kernel, template, candidate, point, catalogue.include_dirs)
        row = {"candidate": candidate.digest, "source": source.digest, "failed": [], "checks": 0}
        rows.append(row)
        started = time.perf_counter()
        try:
            module = cupy.RawModule(
                code=source.text,
                backend="nvrtc",
                options=("--std=c++17", "-I/usr/local/cuda/include"),
            )
            function = module.get_function(source.entries[0])
            function.max_dynamic_shared_size_bytes = point.smem_dynamic_bytes
            row["registers"] = function.num_regs
            row["compile_s"] = round(time.perf_counter() - started, 3)
            cases = [
                *derived_cases(kernel, compiled, point.tiles, 0),
                workload_case(kernel.workload(WORKLOAD), 0),
            ]
            for case in cases:
                made = lay_out(kernel, template, point, case, case_data(kernel, case))
                images, launch = _upload(cupy, made, function)
                launch()
                cupy.cuda.Device().synchronize()
                outputs = {name: cupy.asnumpy(image) for name, image in images.items()}
                checks, reason = compare(
                    SimpleNamespace(kernel=kernel), Execution(made, "device", outputs, None)
                )
                row["checks"] += len(checks)
                row["failed"] += [check.sentence for check in checks if not check.passed][:1]
            row["measured_us"] = _time(cupy, launch)
        except Exception as error:
            row["failed"].append(f"{type(error).__name__}: {str(error)[:300]}")
        print(len(rows), candidate.template, row.get("measured_us"), row["failed"][:1], flush=True)
    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    out.write_text(
        json.dumps(
            {
                "device": name,
                "cupy": cupy.__version__,
                "rows": rows,
                "runtime": cupy.cuda.runtime.runtimeGetVersion(),
                "driver": cupy.cuda.runtime.driverGetVersion(),
            }
        )
    )


def _upload(cupy, made, function):
    """Device images of a problem and a call that launches it."""
    images = {tensor.name: cupy.asarray(tensor.image) for tensor in made.tensors}
    arguments = []
    for argument in made.arguments:
        match argument:
            case None:
                arguments.append(cupy.uint64(0))
            case Scalar():
                arguments.append(
                    {"int32": cupy.int32, "int64": cupy.int64, "float32": cupy.float32}[
                        argument.dtype
                    ](argument.value)
                )
            case Tensor():
                arguments.append(images[argument.name])

    def launch() -> None:
        for one in made.launches:
            function(one.grid, one.block, tuple(arguments), shared_mem=one.smem_dynamic_bytes)

    return images, launch


def _time(cupy, launch) -> float:
    """Microseconds a launch: the difference of a graph of 2N and one of N launches, warm L2, median of 15."""
    stream = cupy.cuda.Stream(non_blocking=True)
    graphs = []
    with stream:
        for count in (LAUNCHES, 2 * LAUNCHES):
            stream.begin_capture()
            for _ in range(count):
                launch()
            graphs.append(stream.end_capture())
        times = []
        for _ in range(17):
            spans = []
            for graph in graphs:
                begin, end = cupy.cuda.Event(), cupy.cuda.Event()
                begin.record(stream)
                graph.launch(stream)
                end.record(stream)
                end.synchronize()
                spans.append(cupy.cuda.get_elapsed_time(begin, end))
            times.append((spans[1] - spans[0]) * 1000 / LAUNCHES)
    return sorted(times[2:])[len(times[2:]) // 2]


def remodel() -> None:
    """What was measured stays; sources that have changed since are refused."""
    from bench.environment import publish

    kept = json.loads(RESULTS.read_text())["rows"]
    rows = [one for one in kept if "candidate" in one]
    for row, timing in zip(rows, modelled(rows)):
        row |= {
            "modelled_us": timing.time_median_us,
            "limited_by": timing.limited_by,
            "limits": dict(timing.limits),
            "mix": dict(timing.mix),
        }
    about = [one for one in kept if one.get("what") in ("device", "agreement")]
    publish("gpu_check", about + _comparison(rows) + rows)


def modelled(rows: list[dict], workload: str = WORKLOAD):
    """The modelled time of each row's candidate on the workload."""
    from greenfast.search.targets import TargetSettings, open_target
    from greenfast.search.toolchain import Toolchain

    catalogue = Catalogue.from_environment()
    kernel = catalogue.kernel("attention")
    case, compiled = (
        workload_case(kernel.workload(workload), 0),
        kernel.workload(workload).compile_time(kernel),
    )
    reference = case_data(kernel, case)
    with tempfile.TemporaryDirectory() as folder:
        toolchain = Toolchain(Path(folder), 1)
        target = open_target(
            "emulator:h200",
            TargetSettings(
                Path(folder), catalogue.include_dirs, usable_cores(), run_deadline_s=DEADLINE_S
            ),
        )
        for row in rows:
            template = kernel.template(row["template"])
            candidate = Candidate(
                kernel.name,
                template.name,
                tuple(row["parameters"].items()),
                Origin(OriginKind.SAMPLED),
            )
            point = resolve(template, candidate.parameters, compiled)
            source = render(kernel, template, candidate, point, catalogue.include_dirs)
            if not source.digest.startswith(row["source"]):
                sys.exit(
                    f"the source of {row['template']} {row['parameters']} is another one now: measure it again"
                )
            made = lay_out(kernel, template, point, case, reference, optional_outputs=False)
            cubin = toolchain.compile(source, "sm_90")
            yield target.measure(target.load(source, cubin), cubin, [made])[0]
        toolchain.close()


def merge(emulator_path: Path, gpu_path: Path) -> None:
    from bench.environment import publish

    emulated = {load["candidate"]: load for load in json.loads(emulator_path.read_text())}
    gpu = json.loads(gpu_path.read_text())
    rows = [{**emulated[row["candidate"]], **row} for row in gpu["rows"]]
    summary = [
        {
            "what": "device",
            "device": gpu["device"],
            "cupy": gpu["cupy"],
            "runtime": gpu["runtime"],
            "driver": gpu["driver"],
        }
    ]
    summary.append(
        {
            "what": "agreement",
            "candidates": len(rows),
            "checks_on_gpu": sum(row["checks"] for row in rows),
            "green_on_emulator": sum(row["verdict"] == "green" for row in rows),
            "right_on_gpu": sum(not row["failed"] for row in rows),
            "green_but_wrong_on_gpu": sum(
                row["verdict"] == "green" and bool(row["failed"]) for row in rows
            ),
        }
    )
    summary += _comparison(rows)
    kept = (
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
    publish("gpu_check", summary + [{name: row[name] for name in kept} for row in rows])


def _comparison(rows: list[dict]) -> list[dict]:
    summary = []
    for template in [*RANDOM, None]:
        both = [
            row
            for row in rows
            if template in (None, row["template"]) and row.get("measured_us") and row["modelled_us"]
        ]
        summary.append(
            {
                "what": "modelled against measured",
                "template": template or "all",
                "candidates": len(both),
                "spearman": round(
                    _spearman(
                        [one["modelled_us"] for one in both], [one["measured_us"] for one in both]
                    ),
                    3,
                ),
                **_spread([one["measured_us"] / one["modelled_us"] for one in both]),
            }
        )
    return summary + _misordered(
        [(row["modelled_us"], row["measured_us"]) for row in rows if row.get("measured_us")]
    )


def _misordered(times: list[tuple[float, float]]) -> list[dict]:
    """Of all pairs of candidates, by how far apart the model puts them: the share that the GPU orders the other way."""
    found = []
    for low, high in ((1, 1.25), (1.25, 1.5), (1.5, 1.75), (1.75, 2), (2, 2.5), (2.5, 1e9)):
        pairs = [
            (slow[1] < fast[1])
            for slow in times
            for fast in times
            if slow is not fast and low <= slow[0] / fast[0] < high
        ]
        found.append(
            {
                "what": "pairs ordered wrongly",
                "modelled_ratio_from": low,
                "pairs": len(pairs),
                "share": round(sum(pairs) / max(1, len(pairs)), 4),
            }
        )
    return found


def _spread(ratios: list[float]) -> dict[str, float]:
    """The spread of measured / modelled."""
    ordered = sorted(ratios)
    return {
        "ratio_p5": round(ordered[len(ordered) // 20], 2),
        "ratio_median": round(ordered[len(ordered) // 2], 2),
        "ratio_p95": round(ordered[-1 - len(ordered) // 20], 2),
    }


def _spearman(first: list[float], second: list[float]) -> float:
    def ranks(values):
        order = sorted(range(len(values)), key=values.__getitem__)
        found = [0.0] * len(values)
        for rank, position in enumerate(order):
            found[position] = float(rank)
        return found

    a, b = ranks(first), ranks(second)
    mean = (len(a) - 1) / 2
    covariance = sum((x - mean) * (y - mean) for x, y in zip(a, b))
    return covariance / math.sqrt(sum((x - mean) ** 2 for x in a) * sum((y - mean) ** 2 for y in b))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["emulator", path, *_]:
            on_emulator(Path(path))
        case ["gpu", path, *_]:
            on_gpu(Path(path))
        case ["remodel", *_]:
            remodel()
        case ["merge", first, second, *_]:
            merge(Path(first), Path(second))
        case _:
            sys.exit(__doc__)
