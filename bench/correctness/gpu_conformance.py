"""Does the emulator match a GPU bit for bit, primitive by primitive?

python -m bench.correctness.gpu_conformance emulator OUT.json [--only TEXT ...]
python -m bench.correctness.gpu_conformance gpu OUT.json [--only TEXT ...]      with a GPU
python -m bench.correctness.gpu_conformance compare EMULATOR.json GPU.json [--save]

`emulator` and `gpu` also compare with what a case expects, and name the differences.
--only runs the cases whose names contain one of the texts.
GREENFAST_CONFORMANCE_CACHE is a folder in which compiled kernels stay; without it, they are
compiled anew.
"""

from __future__ import annotations

import base64
import os
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np

from bench.command_line import add_save, script_parser
from bench.correctness.conformance import Case, all_cases
from bench.correctness.conformance.gpu import HEADERS, Launcher, compiled, flattened, runs_on
from bench.environment import publish
from bench.results import Row, read_json, write_json
from greenfast.search.targets.cuda import gpu_count
from greenfast.search.targets.emulator.build import EmulatorBuild
from greenfast.search.targets.emulator.execute import (
    Buffer,
    Launch,
    PointerArgument,
    Run,
    TensorMapArgument,
    execute,
)
from greenfast.search.toolchain import CompileFailed, Cubin
from greenfast.search.toolchain.toolkit import find_toolkit

__all__ = ["compared", "emulated", "flattened", "kept", "unexpected_outputs"]

SHOWN = 5
# How a launch that a GPU refuses ends there, and on the emulator.
REFUSALS = ("CUDA_ERROR_ILLEGAL_INSTRUCTION", "'misaligned'", "'device_fault'")
LARGEST_KEPT_BYTES, PIECE_BYTES = 4096, 1024


def on_emulator(out: Path, only: Sequence[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        build = EmulatorBuild(_cache(folder), include_dirs=(HEADERS,))
        rows = [_row(case, lambda case=case: emulated(build, case)) for case in _chosen(only)]
    write_json(out, {"device": "emulator", "rows": rows})
    return _ended(rows)


def _ended(rows: list[Row]) -> int:
    """The exit code, after a line with the counts."""
    failed, unexpected = (sum(word in row for row in rows) for word in ("failed", "unexpected"))
    print(f"{len(rows)} cases: {failed} failed, {unexpected} not as expected", flush=True)
    return int(failed + unexpected > 0)


def _cache(folder: str) -> Path:
    return Path(os.environ.get("GREENFAST_CONFORMANCE_CACHE", folder))


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
        (
            *(PointerArgument(buffer.name) for buffer in buffers),
            *map(TensorMapArgument, case.maps),
        ),
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


def _chosen(only: Sequence[str]) -> list[Case]:
    return [case for case in all_cases() if any(text in case.name for text in only)]


def on_gpu(out: Path, only: Sequence[str]) -> int:
    if not gpu_count():
        raise SystemExit("This comparison needs an NVIDIA GPU, and none is visible here.")
    launcher = Launcher()
    try:
        facts = {**launcher.facts(), "nvrtc": find_toolkit().nvrtc_version}
        architecture = facts["architecture"]
        skipped = {
            case.name: f"needs sm_{case.architecture}"
            for case in _chosen(only)
            if not runs_on(case, architecture)
        }
        cases = [case for case in _chosen(only) if case.name not in skipped]
        with tempfile.TemporaryDirectory() as folder:
            codes = compiled(cases, architecture, _cache(folder))
        rows = [_row(case, lambda case=case: _gpu_outputs(launcher, case, codes)) for case in cases]
    finally:
        launcher.close()
    rows += [{"case": name, "skipped": reason} for name, reason in skipped.items()]
    facts |= {"architecture": f"sm_{architecture}"}
    write_json(out, {**facts, "rows": rows})
    return _ended(rows)


def _gpu_outputs(
    launcher: Launcher, case: Case, codes: Mapping[str, Cubin | CompileFailed]
) -> dict[str, np.ndarray]:
    code = codes[case.name]
    if isinstance(code, CompileFailed):
        raise RuntimeError(f"{code.sentence}\n{code.log[-1500:]}")
    return launcher.outputs(case, code.code)


def _row(case: Case, outputs_of: Callable[[], dict[str, np.ndarray]]) -> Row:
    try:
        outputs = outputs_of()
    except Exception as error:
        if case.fails and any(words in str(error) for words in REFUSALS):
            print(f"{case.name}: fails, as expected", flush=True)
            return {"case": case.name, "fails": str(error)[:300]}
        print(f"{case.name}: FAILED {type(error).__name__}: {str(error)[:2000]}", flush=True)
        return {"case": case.name, "failed": f"{type(error).__name__}: {str(error)[:2000]}"}
    row: Row = {"case": case.name, "outputs": {}}
    if case.fails:
        row["unexpected"] = "it does not fail"
    for name, value in outputs.items():
        row["outputs"][name] = kept(_bytes(value), whole=name in case.bounds)
    if unexpected := unexpected_outputs(case, outputs):
        row["unexpected"] = unexpected
    words = f"NOT as expected: {row['unexpected']}" if "unexpected" in row else "done"
    print(f"{case.name}: {words}", flush=True)
    return row


def unexpected_outputs(case: Case, outputs: Mapping[str, np.ndarray]) -> list[Row]:
    """The outputs that differ from what the case expects, with their first different bytes."""
    rows: list[Row] = []
    for name, right in case.expected.items():
        ours, theirs = _bytes(right), _bytes(outputs[name])
        where = np.flatnonzero(ours != theirs)
        if where.size:
            examples = [[int(i), int(ours[i]), int(theirs[i])] for i in where[:SHOWN]]
            rows.append({"output": name, "different_bytes": where.size, "examples": examples})
    return rows


def kept(data: np.ndarray, *, whole: bool = False) -> str | list[str]:
    """An output in a file: its bytes, or of a large one the digest of each piece."""
    if data.size <= LARGEST_KEPT_BYTES or whole:
        return base64.b64encode(zlib.compress(data.tobytes())).decode()
    starts = range(0, data.size, PIECE_BYTES)
    return [
        sha256(data[start : start + PIECE_BYTES].tobytes()).hexdigest()[:16] for start in starts
    ]


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
        for verdict in ("equal", "fails on both", "within bounds", "different", "not run")
    }
    print(counts)
    if save:
        facts = {name: value for name, value in gpu.items() if name != "rows"}
        about = [{"what": "device", **facts}, {"what": "summary", **counts}]
        publish("gpu_conformance", [*about, *map(_published, rows)], save=True)
    return int(counts["different"] > 0)


def _published(row: Row) -> Row:
    """Without the outputs that are equal: their number and that of their elements remain."""
    outputs = row.get("outputs")
    if outputs is None:
        return row
    different = {name: output for name, output in outputs.items() if output["different"]}
    elements = sum(output["elements"] for output in outputs.values())
    verdict = {"case": row["case"], "verdict": row["verdict"], "outputs": len(outputs)}
    return {**verdict, "elements": elements, **({"different": different} if different else {})}


def compared(case: Case, ours: Row, theirs: Row) -> Row:
    if case.fails:
        same = "fails" in ours and "fails" in theirs
        return {"case": case.name, "verdict": "fails on both" if same else "different"}
    reason = [
        side.get("failed") or side.get("skipped")
        for side in (ours, theirs)
        if "outputs" not in side
    ]
    if reason:
        return {"case": case.name, "verdict": "not run", "reason": reason[0][:300]}
    outputs = {
        name: _difference_of(case, name, ours["outputs"][name], theirs["outputs"][name])
        for name in case.outputs
    }
    different = any(output["different"] for output in outputs.values())
    verdict = "different" if different else "within bounds" if case.bounds else "equal"
    return {"case": case.name, "verdict": verdict, "outputs": outputs}


def _difference_of(case: Case, name: str, ours: str | list[str], theirs: str | list[str]) -> Row:
    like = case.outputs[name]
    if isinstance(ours, str) and isinstance(theirs, str):
        return _difference(case, name, _unpacked(ours, like), _unpacked(theirs, like))
    where = [i for i, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1]]
    in_piece = PIECE_BYTES // like.itemsize
    return {
        "elements": like.size,
        # At most so many: those of the pieces that differ.
        "different": min(len(where) * in_piece, like.size),
        "different_nan_only": 0,
        "examples": [[i * in_piece, ours[i], theirs[i]] for i in where[:SHOWN]],
    }


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


def _unpacked(packed: str, like: np.ndarray) -> np.ndarray:
    data = zlib.decompress(base64.b64decode(packed))
    return np.frombuffer(data, like.dtype).reshape(like.shape)


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def main() -> int:
    parser = script_parser(__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("emulator", "gpu"):
        running = commands.add_parser(name)
        running.add_argument("out", type=Path, metavar="OUT.json")
        running.add_argument("--only", nargs="+", default=[""], metavar="TEXT")
    comparing = commands.add_parser("compare")
    comparing.add_argument("emulator", type=Path, metavar="EMULATOR.json")
    comparing.add_argument("gpu", type=Path, metavar="GPU.json")
    add_save(comparing)
    options = parser.parse_args()
    match options.command:
        case "emulator":
            return on_emulator(options.out, options.only)
        case "gpu":
            return on_gpu(options.out, options.only)
        case _:
            return compare(options.emulator, options.gpu, save=options.save)


if __name__ == "__main__":
    raise SystemExit(main())
