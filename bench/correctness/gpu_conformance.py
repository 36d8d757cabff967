"""Does a GPU do bit for bit what the emulator does, primitive by primitive?

python -m bench.correctness.gpu_conformance emulator OUT.json          here
python -m bench.correctness.gpu_conformance gpu OUT.json               on a machine with a GPU; needs CuPy and NumPy only
python -m bench.correctness.gpu_conformance compare EMULATOR.json GPU.json [--save]     --save keeps it in bench/results/
"""

from __future__ import annotations

import base64
import json
import os
import re
import sys
import tempfile
import zlib
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]

from bench.correctness.conformance import Case, cases  # noqa: E402

HEADERS = ROOT / "kernel_templates" / "include"
SHOWN = 5


def on_emulator(out: Path) -> int:
    from greenfast.search.targets.emulator.build import EmulatorBuild

    with tempfile.TemporaryDirectory() as folder:
        build = EmulatorBuild(
            Path(os.environ.get("GREENFAST_CONFORMANCE_CACHE", folder)), include_dirs=(HEADERS,)
        )
        rows = [_row(case, lambda case=case: emulated(build, case)) for case in cases()]
    out.write_text(json.dumps({"device": "emulator", "rows": rows}))
    return sum("failed" in row for row in rows)


def emulated(
    build, case: Case, *, order: str = "forward", flavour: str = "plain"
) -> dict[str, np.ndarray]:
    """The case's outputs on the emulator; RuntimeError when it finds fault with the kernel."""
    from greenfast.search.targets.emulator.execute import (
        Buffer,
        Launch,
        PointerArgument,
        Run,
        execute,
    )

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
    import cupy

    device = cupy.cuda.Device()
    architecture = int(device.compute_capability)
    rows = []
    for case in cases():
        if architecture < case.architecture:
            rows.append({"case": case.name, "skipped": f"needs sm_{case.architecture}"})
            continue
        rows.append(_row(case, lambda case=case: _gpu_outputs(cupy, case)))
    out.write_text(
        json.dumps(
            {
                "device": cupy.cuda.runtime.getDeviceProperties(0)["name"].decode(),
                "architecture": f"sm_{architecture}",
                "cupy": cupy.__version__,
                "nvrtc": list(cupy.cuda.nvrtc.getVersion()),
                "driver": cupy.cuda.runtime.driverGetVersion(),
                "rows": rows,
            }
        )
    )
    return sum("failed" in row for row in rows)


def _gpu_outputs(cupy, case: Case) -> dict[str, np.ndarray]:
    include = os.environ.get("CUDA_PATH", "/usr/local/cuda") + "/include"
    module = cupy.RawModule(
        code=flattened(case.source),
        backend="nvrtc",
        options=("--std=c++17", f"-I{include}", f"-I{include}/cccl"),
    )
    function = module.get_function("k")
    arrays = {name: cupy.asarray(_bytes(value)) for name, value in case.inputs.items()}
    # Poisoned as the emulator poisons: what a kernel does not write must agree too.
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
    """The source with the device form of its `gf/` headers in place of their includes, each once."""
    done: set[str] = set()

    def lines(text: str):
        for line in text.splitlines():
            found = re.match(r'\s*#\s*include\s+"(gf/[\w./-]+)"', line)
            if found and found.group(1) not in done:
                done.add(found.group(1))
                yield from lines((HEADERS / found.group(1)).read_text())
            elif not found and not re.match(r"\s*#\s*pragma\s+once", line):
                yield line

    return "\n".join(lines(source)) + "\n"


def _row(case: Case, outputs) -> dict:
    try:
        made = outputs()
    except Exception as error:
        print(f"{case.name}: FAILED {type(error).__name__}: {str(error)[:2000]}", flush=True)
        return {"case": case.name, "failed": f"{type(error).__name__}: {str(error)[:2000]}"}
    print(f"{case.name}: done", flush=True)
    return {
        "case": case.name,
        "outputs": {
            name: base64.b64encode(zlib.compress(_bytes(value).tobytes())).decode()
            for name, value in made.items()
        },
    }


def compare(emulator_path: Path, gpu_path: Path, save: bool) -> int:
    emulator, gpu = (json.loads(path.read_text()) for path in (emulator_path, gpu_path))
    by_name = {case.name: case for case in cases()}
    theirs = {row["case"]: row for row in gpu["rows"]}
    rows = [compared(by_name[row["case"]], row, theirs[row["case"]]) for row in emulator["rows"]]
    for row in rows:
        print(f"{row['case']}: {row['verdict']}")
        for name, one in row.get("outputs", {}).items():
            if one["different"]:
                print(
                    f"    {name}: {one['different']} of {one['elements']} differ "
                    f"({one['different_nan_only']} in a NaN's bits only), such as {one['examples']}"
                )
    counts = {
        verdict: sum(row["verdict"] == verdict for row in rows)
        for verdict in ("equal", "within bounds", "different", "not run")
    }
    print(counts)
    if save:
        from bench.environment import publish

        facts = {name: value for name, value in gpu.items() if name != "rows"}
        publish(
            "gpu_conformance", [{"what": "device", **facts}, {"what": "summary", **counts}, *rows]
        )
    return counts["different"]


def compared(case: Case, ours: dict, theirs: dict) -> dict:
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


def _difference(case: Case, name: str, ours: np.ndarray, theirs: np.ndarray) -> dict:
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


def _unpacked(row: dict, name: str, like: np.ndarray) -> np.ndarray:
    data = zlib.decompress(base64.b64decode(row["outputs"][name]))
    return np.frombuffer(data, like.dtype).reshape(like.shape)


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def main(words: list[str]) -> int:
    match words:
        case ["emulator", out]:
            return on_emulator(Path(out))
        case ["gpu", out]:
            return on_gpu(Path(out))
        case ["compare", emulator, gpu, *rest] if rest in ([], ["--save"]):
            return compare(Path(emulator), Path(gpu), bool(rest))
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
