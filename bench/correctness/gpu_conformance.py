"""Does the emulator match a GPU bit for bit, primitive by primitive?

python -m bench.correctness.gpu_conformance emulator OUT.json
python -m bench.correctness.gpu_conformance gpu OUT.json           with a GPU and CuPy
python -m bench.correctness.gpu_conformance compare EMULATOR.json GPU.json [--save]
"""

from __future__ import annotations

import base64
import os
import re
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.command_line import add_save, require_gpu, script_parser
from bench.correctness.conformance import Case, all_cases
from bench.environment import publish
from bench.results import ROOT, Row, read_json, write_json
from greenfast.search.targets.emulator.build import EmulatorBuild
from greenfast.search.targets.emulator.execute import (
    Buffer,
    Launch,
    PointerArgument,
    Run,
    execute,
)

HEADERS = ROOT / "kernel_templates" / "include"
SHOWN = 5


def on_emulator(out: Path) -> int:
    with tempfile.TemporaryDirectory() as folder:
        build = EmulatorBuild(
            Path(os.environ.get("GREENFAST_CONFORMANCE_CACHE", folder)), include_dirs=(HEADERS,)
        )
        rows = [_row(case, lambda case=case: emulated(build, case)) for case in all_cases()]
    write_json(out, {"device": "emulator", "rows": rows})
    return sum("failed" in row for row in rows)


def emulated(
    build: EmulatorBuild, case: Case, *, order: str = "forward", flavour: str = "plain"
) -> dict[str, np.ndarray]:
    """The case's outputs on the emulator; RuntimeError if the kernel fails or has findings."""
    module = build.build_module(
        f'#line 1 "{case.name}"\n{case.source}', ("k",), flavour=flavour, deadline_s=60
    )
    if hasattr(module, "log"):
        raise RuntimeError(module.log)
    buffers = [Buffer(name, "input", _bytes(value)) for name, value in case.inputs.items()]
    buffers += [Buffer(name, "output", _bytes(value)) for name, value in case.outputs.items()]
    launch = Launch("k", case.grid, case.block, case.smem_dynamic_bytes, cluster=case.cluster)
    run = Run(
        "conformance",
        (launch,),
        tuple(buffers),
        tuple(PointerArgument(buffer.name) for buffer in buffers),
        order=order,
        check=flavour == "checked",
    )
    result = execute(build, module, [run], workers=2, deadline_s=60, memory_bytes=2**31)[0]
    if result.status != "finished" or result.canary or result.findings:
        raise RuntimeError(f"{result.status}: {result.faults} {result.canary} {result.findings}")
    return {
        name: result.outputs[name].view(value.dtype).reshape(value.shape)
        for name, value in case.outputs.items()
    }


def on_gpu(out: Path) -> int:
    require_gpu()
    import cupy

    device = cupy.cuda.Device()
    architecture = int(device.compute_capability)
    rows = []
    for case in all_cases():
        if architecture < case.architecture or (
            case.arch_specific and architecture != case.architecture
        ):
            rows.append({"case": case.name, "skipped": f"needs sm_{case.architecture}"})
            continue
        rows.append(_row(case, lambda case=case: _gpu_outputs(cupy, case)))
    write_json(
        out,
        {
            "device": cupy.cuda.runtime.getDeviceProperties(0)["name"].decode(),
            "architecture": f"sm_{architecture}",
            "cupy": cupy.__version__,
            "nvrtc": list(cupy.cuda.nvrtc.getVersion()),
            "driver": cupy.cuda.runtime.driverGetVersion(),
            "rows": rows,
        },
    )
    return sum("failed" in row for row in rows)


def _gpu_outputs(cupy: Any, case: Case) -> dict[str, np.ndarray]:
    include = os.environ.get("CUDA_PATH", "/usr/local/cuda") + "/include"
    module = cupy.RawModule(
        code=flattened(case.source),
        backend="nvrtc",
        options=(
            "--std=c++17",
            f"-I{include}",
            f"-I{include}/cccl",
            *((f"-arch=sm_{case.architecture}a",) if case.arch_specific else ()),
        ),
    )
    function = module.get_function("k")
    arrays = {name: cupy.asarray(_bytes(value)) for name, value in case.inputs.items()}
    # Poisoned as on the emulator: bytes that the kernel does not write must agree too.
    arrays |= {
        name: cupy.full(value.nbytes, 0xFF, cupy.uint8) for name, value in case.outputs.items()
    }
    function(case.grid, case.block, tuple(arrays.values()), shared_mem=case.smem_dynamic_bytes)
    cupy.cuda.Device().synchronize()
    return {
        name: cupy.asnumpy(arrays[name]).view(value.dtype).reshape(value.shape)
        for name, value in case.outputs.items()
    }


def flattened(source: str) -> str:
    """The source with the device form of its `gf/` headers in place of their first includes."""
    done: set[str] = set()

    def lines(text: str) -> Iterator[str]:
        for line in text.splitlines():
            include = re.match(r'\s*#\s*include\s+"(gf/[\w./-]+)"', line)
            if include and include.group(1) not in done:
                done.add(include.group(1))
                yield from lines((HEADERS / include.group(1)).read_text())
            elif not include and not re.match(r"\s*#\s*pragma\s+once", line):
                yield line

    return "\n".join(lines(source)) + "\n"


def _row(case: Case, outputs_of: Callable[[], dict[str, np.ndarray]]) -> Row:
    try:
        outputs = outputs_of()
    except Exception as error:
        print(f"{case.name}: FAILED {type(error).__name__}: {str(error)[:2000]}", flush=True)
        return {"case": case.name, "failed": f"{type(error).__name__}: {str(error)[:2000]}"}
    print(f"{case.name}: done", flush=True)
    return {
        "case": case.name,
        "outputs": {
            name: base64.b64encode(zlib.compress(_bytes(value).tobytes())).decode()
            for name, value in outputs.items()
        },
    }


def compare(emulator_path: Path, gpu_path: Path, *, save: bool) -> int:
    emulator, gpu = read_json(emulator_path), read_json(gpu_path)
    by_name = {case.name: case for case in all_cases()}
    theirs = {row["case"]: row for row in gpu["rows"]}
    rows = [compared(by_name[row["case"]], row, theirs[row["case"]]) for row in emulator["rows"]]
    for row in rows:
        print(f"{row['case']}: {row['verdict']}")
        for name, output in row.get("outputs", {}).items():
            if output["different"]:
                print(
                    f"    {name}: {output['different']} of {output['elements']} differ "
                    f"({output['different_nan_only']} in a NaN's bits only), for example "
                    f"{output['examples']}"
                )
    counts = {
        verdict: sum(row["verdict"] == verdict for row in rows)
        for verdict in ("equal", "within bounds", "different", "not run")
    }
    print(counts)
    if save:
        facts = {name: value for name, value in gpu.items() if name != "rows"}
        about = [{"what": "device", **facts}, {"what": "summary", **counts}]
        publish("gpu_conformance", [*about, *rows], save=True)
    return counts["different"]


def compared(case: Case, ours: Row, theirs: Row) -> Row:
    reason = [
        side.get("failed") or side.get("skipped")
        for side in (ours, theirs)
        if "outputs" not in side
    ]
    if reason:
        return {"case": case.name, "verdict": "not run", "reason": reason[0][:300]}
    outputs = {
        name: _difference(case, name, _unpacked(ours, name, shape), _unpacked(theirs, name, shape))
        for name, shape in case.outputs.items()
    }
    different = any(output["different"] for output in outputs.values())
    verdict = "different" if different else "within bounds" if case.bounds else "equal"
    return {"case": case.name, "verdict": verdict, "outputs": outputs}


def _difference(case: Case, name: str, ours: np.ndarray, theirs: np.ndarray) -> Row:
    nan_only = np.zeros(ours.shape, bool)
    if ours.dtype.kind == "f":
        nan_only = np.isnan(ours) & np.isnan(theirs)
    if name in case.bounds:
        relative, absolute = case.bounds[name]
        with np.errstate(invalid="ignore", over="ignore"):
            wide, exact = ours.astype(np.float64), theirs.astype(np.float64)
            different = (
                ~(np.abs(wide - exact) <= relative * np.abs(wide) + absolute)
                & (wide != exact)
                & ~nan_only
            )
    else:
        words = f"u{ours.dtype.itemsize}"
        different = ours.view(words) != theirs.view(words)
    where = np.flatnonzero(different)[:SHOWN]
    return {
        "elements": ours.size,
        "different": int(different.sum()),
        "different_nan_only": int((different & nan_only).sum()),
        "examples": [[int(i), _shown(ours, i), _shown(theirs, i)] for i in where],
    }


def _shown(values: np.ndarray, index: int) -> str:
    return _bytes(values.reshape(-1)[index : index + 1])[::-1].tobytes().hex()


def _unpacked(row: Row, name: str, like: np.ndarray) -> np.ndarray:
    data = zlib.decompress(base64.b64decode(row["outputs"][name]))
    return np.frombuffer(data, like.dtype).reshape(like.shape)


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def main() -> int:
    parser = script_parser(__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("emulator", "gpu"):
        commands.add_parser(name).add_argument("out", type=Path, metavar="OUT.json")
    comparing = commands.add_parser("compare")
    comparing.add_argument("emulator", type=Path, metavar="EMULATOR.json")
    comparing.add_argument("gpu", type=Path, metavar="GPU.json")
    add_save(comparing)
    options = parser.parse_args()
    match options.command:
        case "emulator":
            return on_emulator(options.out)
        case "gpu":
            return on_gpu(options.out)
        case _:
            return compare(options.emulator, options.gpu, save=options.save)


if __name__ == "__main__":
    raise SystemExit(main())
