"""attention/wgmma as it is, and with its softmax kept before the wait for P V, in turns.

    python -m bench.gpu.ordered_wait OUT.json [--only TEXT] [--seconds 120]

ptxas moves the wait for P V up over the softmax that was written before it. Both orders are right
(gf/computed_before.cuh). Of each point, both forms are compiled, compared with torch in
bf16, and timed in turns in this process, L2 hot. `ratio` is the kept form's time over the other's.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

from bench.command_line import require_gpu, script_parser
from bench.environment import basic_environment
from bench.gpu.fp8_sweep import Sizes
from bench.gpu.gemm_sweep import DEADLINE_S, Point, _in_turns, _median, _warm_up, described
from bench.results import Row, write_json
from greenfast.search.cores import usable_cores
from greenfast.search.devices.facts import device
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.kernels.spec import TemplateSpec
from greenfast.search.kernels.workloads import Items
from greenfast.search.render import RenderedSource, render
from greenfast.search.space.candidate import (
    Candidate,
    Origin,
    OriginKind,
    complete_parameters,
    preset_candidate,
)
from greenfast.search.space.space import Space, resolve
from greenfast.search.toolchain.nvrtc import Cubin, Toolchain

CAUSAL = ",mask=causal_top_left"
ROWS = (
    "B=4,H=16,S_q=4096,D=128",
    "B=4,H=16,S_q=4096,D=128" + CAUSAL,
    "B=4,H=16,S_q=4096,D=64",
    "B=4,H=16,S_q=4096,D=64" + CAUSAL,
    "B=1,H=16,S_q=16384,D=128",
    "B=2,H=8,S_q=2048,D=64",
    "B=2,H=8,S_q=2048,D=64" + CAUSAL,
)
FINALISTS, WORSE, TOLERANCE = 3, 1.3, 0.02
BEFORE = "        update(softmax, keep, scores, scale_log2);\n{% if overlap %}\n"
KEPT = "        gf::computed_before(softmax.sum[0] + softmax.sum[1]);\n"
INCLUDE = '#include "gf/dtype.cuh"\n'


def main() -> int:
    parser = script_parser(__doc__)
    parser.add_argument("out", type=Path, metavar="OUT.json")
    parser.add_argument("--only", default="", help="text that a row contains")
    parser.add_argument("--seconds", type=float, default=120.0, help="begin no row after these")
    options = parser.parse_args()
    require_gpu()
    began, rows = time.monotonic(), []
    environment = {**basic_environment(), "date": time.strftime("%Y-%m-%d", time.gmtime())}
    with tempfile.TemporaryDirectory(prefix="greenfast-ordered-") as folder:
        forms = {"as_it_is": Catalogue([REPOSITORY_TEMPLATES]), "kept": kept(Path(folder))}
        for text in ROWS:
            if options.only not in text or time.monotonic() - began > options.seconds:
                continue
            rows.append(row(text, forms, Path(folder)))
            print(f"{text}: torch {rows[-1]['torch_us']:.1f} us, {time.monotonic() - began:.0f} s")
            for each in rows[-1]["points"]:
                print(f"   {each}", flush=True)
            write_json(options.out, {"environment": environment, "rows": rows})
    return 0


def kept(folder: Path) -> Catalogue:
    """A catalogue in which the softmax of attention/wgmma stays before the wait."""
    target = folder / "attention"
    shutil.copytree(REPOSITORY_TEMPLATES / "attention", target)
    for name, old, new in (
        ("wgmma/walk.cu.j2", BEFORE, BEFORE + KEPT),
        ("wgmma.cu.j2", INCLUDE, '#include "gf/computed_before.cuh"\n' + INCLUDE),
    ):
        text = (target / name).read_text("utf-8")
        assert text.count(old) == 1, name
        (target / name).write_text(text.replace(old, new), "utf-8")
    return Catalogue([REPOSITORY_TEMPLATES, folder])


def workload(text: str) -> Sizes:
    given = dict(item.split("=") for item in text.split(","))
    mask = given.pop("mask", "none")
    dims = {name: int(size) for name, size in given.items()}
    compiled = {"D": dims["D"], "dtype": "bf16", "mask": mask}
    return Sizes(dims, mask != "none", tuple(sorted(compiled.items())))


def drawn_points(space: Space, template: TemplateSpec) -> Iterator[tuple[str, Items]]:
    """The presets that suit, and tiles of two and three consumers."""
    for preset in template.presets:
        parameters = preset_candidate(template, preset.name, space.compiled).parameters
        if space.is_valid(parameters):
            yield preset.name, parameters
    tiles = ((2, 128), (2, 144), (2, 160), (2, 176), (3, 80), (3, 96), (3, 112), (3, 128))
    choices = product(tiles, (2, 3), (False, True), (False, True), ("grid", "persistent"))
    for (consumers, tile_n), stages, turns, lazy, scheduler in choices:
        given = {
            "consumers": consumers,
            "tile_n": tile_n,
            "stages": stages,
            "turns": turns,
            "lazy_rescale": lazy,
            "scheduler": scheduler,
            "heads_together": 32,
        }
        parameters = complete_parameters(template, given, space.compiled)
        if space.is_valid(parameters):
            yield "grid", parameters


def compiled_points(catalogue: Catalogue, sizes: Sizes) -> dict[Items, Point]:
    """The points that compile without spilling, by their parameters."""
    kernel = catalogue.kernel("attention")
    template = kernel.template("wgmma")
    space = Space(template, sizes.compiled, device("h200"))
    drawn = {item[1]: item for item in drawn_points(space, template)}
    with tempfile.TemporaryDirectory(prefix="greenfast-sweep-") as folder:
        toolchain = Toolchain(Path(folder), usable_cores())

        def compiled_point(item: tuple[str, Items]) -> Point | None:
            name, parameters = item
            resolved = resolve(template, parameters, sizes.compiled, device("h200"))
            origin = Origin(OriginKind.SEEDED)
            candidate = Candidate(kernel.name, template.name, parameters, origin)
            source = render(kernel, template, candidate, resolved, catalogue.include_dirs)
            if not isinstance(source, RenderedSource):
                return None
            cubin = toolchain.compile(source, "sm_90a")
            if not isinstance(cubin, Cubin) or any(e.spill_bytes for e in cubin.entries):
                return None
            return Point(name, parameters, resolved, cubin)

        try:
            with ThreadPoolExecutor(usable_cores()) as threads:
                points = threads.map(compiled_point, drawn.values())
                return {point.parameters: point for point in points if point}
        finally:
            toolchain.close()


def row(text: str, forms: dict[str, Catalogue], folder: Path) -> Row:
    import cupy
    import torch

    from greenfast.search.peers.duel import PeerCall, PeerStopwatch
    from greenfast.search.targets.cuda.launches import Loaded, Stopwatch

    sizes = workload(text)
    compiled = {form: compiled_points(catalogue, sizes) for form, catalogue in forms.items()}
    stream = cupy.cuda.Stream(non_blocking=True)
    torch_stream = torch.cuda.ExternalStream(stream.ptr)
    attention = torch.nn.functional.scaled_dot_product_attention
    modules: list[Any] = []
    with stream, torch.cuda.stream(torch_stream), torch.no_grad():
        torch.manual_seed(7)
        make = {"dtype": torch.bfloat16, "device": "cuda"}
        tensors = {name: torch.randn(*sizes.shape, **make) for name in "qkv"}
        expected = attention(*tensors.values(), is_causal=sizes.causal).float()
        call = PeerCall(
            lambda given: {
                "o": attention(given["q"], given["k"], given["v"], is_causal=sizes.causal)
            },
            dict(tensors),
        )
        peer = PeerStopwatch([call], stream, DEADLINE_S, torch_stream)
        tensors["o"] = torch.zeros(*sizes.shape, **make)
        tensors["lse"] = torch.zeros(*sizes.shape[:3], device="cuda")
        addresses = {name: tensor.data_ptr() for name, tensor in tensors.items()}
        _warm_up(peer)
        torch_us = _median([peer() for _ in range(5)])

        def watch(form: str, point: Point) -> Any:
            path = folder / f"{form}-{len(modules)}.cubin"
            path.write_bytes(point.cubin.code)
            modules.append(cupy.RawModule(path=str(path)))
            kernel = forms[form].kernel("attention")
            launch = described(kernel, kernel.template("wgmma"), point.resolved, sizes.values)
            return Stopwatch([Loaded(modules[-1], launch, addresses, [])], stream, DEADLINE_S)

        def error(timed: Any) -> float:
            tensors["o"].fill_(float("nan"))
            timed.again()
            torch.cuda.synchronize()
            off = (tensors["o"].float() - expected).square().mean() / expected.square().mean()
            return float(off.sqrt())

        watches, screened = {}, []
        for form, points in compiled.items():
            for point in points.values():
                watches[form, point.parameters] = timed = watch(form, point)
                screened.append((min(timed(), timed()), form, point))
        screened.sort(key=lambda each: each[0])
        fastest = dict.fromkeys(
            point.parameters
            for form in compiled
            for point in [each[2] for each in screened if each[1] == form][:FINALISTS]
        )
        presets = [p.parameters for p in compiled["as_it_is"].values() if p.name != "grid"]
        results = []
        for parameters in dict.fromkeys([*fastest, *presets]):
            if any((form, parameters) not in watches for form in forms):
                continue
            ours, theirs = (watches[form, parameters] for form in ("kept", "as_it_is"))
            kept_us, plain_us = _in_turns(ours, theirs)
            results.append(
                {
                    "point": compiled["kept"][parameters].name,
                    "kept_us": kept_us,
                    "as_it_is_us": plain_us,
                    "ratio": kept_us / plain_us,
                    "tflops": sizes.flop / kept_us / 1e6,
                    "error": error(ours),
                    "wrong": not error(ours) <= TOLERANCE,
                    "parameters": list(dict(parameters).values()),
                }
            )
        results.sort(key=lambda each: each["kept_us"])
        best = {form: next(e[0] for e in screened if e[1] == form) for form in forms}
    return {"workload": text, "torch_us": torch_us, "screened_best_us": best, "points": results}


if __name__ == "__main__":
    raise SystemExit(main())
