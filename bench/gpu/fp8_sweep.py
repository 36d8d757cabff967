"""Presets of attention_fp8/wgmma and a grid of its tiles on long sequences, beside bf16 of torch.

    python -m bench.gpu.fp8_sweep OUT.json [--grid | --apart] [--only TEXT] [--seconds 240]

A fast look for the choice of presets, in one process: sizes are arguments of the launch, so each
point is compiled once for a mask and a size of heads, and timed L2 hot on every row of it. Each
output is compared with float32 attention on the same codes: `error` is the root mean square of the
difference over that of the expected values; P is rounded to three fraction bits, so a few percent
are expected. The fastest five are timed again in turns with torch's attention on bf16 numbers,
which is no peer but a yardstick. Published times come from searches, with confirmation.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import tempfile
import time
from collections.abc import Iterator
from itertools import combinations, product
from pathlib import Path
from typing import Any

from bench.command_line import require_gpu, script_parser
from bench.environment import basic_environment
from bench.gpu.gemm_sweep import (
    DEADLINE_S,
    Point,
    _in_turns,
    _median,
    _warm_up,
    compiled_without_spills,
    described,
)
from bench.results import Row, write_json
from greenfast.search.devices.facts import device
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.kernels.expressions import Value
from greenfast.search.kernels.spec import KernelSpec, TemplateSpec
from greenfast.search.kernels.workloads import Items
from greenfast.search.space.candidate import (
    complete_parameters,
    preset_candidate,
)
from greenfast.search.space.space import Space
from greenfast.search.toolchain.ptxas import parse_notes

CAUSAL = ",mask=causal_top_left"
ROWS = (
    "B=4,H=16,S_q=4096,D=128",
    "B=4,H=16,S_q=4096,D=128" + CAUSAL,
    "B=1,H=16,S_q=16384,D=128",
    "B=4,H=16,S_q=4096,D=64",
    "B=2,H=8,S_q=2048,D=64",
    "B=2,H=8,S_q=2048,D=128" + CAUSAL,
)
FORMAT = "e4m3"
MORE = {
    "grid": "a grid of tiles besides the presets",
    "apart": "each preset with masks_apart, too",
}
SEED, SCREEN_SAMPLES, FINALISTS, WORSE = 7, 3, 5, 1.5
TOLERANCE = 0.06
APART = ", masks apart"


def main() -> int:
    options = _options()
    require_gpu()
    catalogue = Catalogue([REPOSITORY_TEMPLATES])
    kernel = catalogue.kernel("attention_fp8")
    template = kernel.template("wgmma")
    began, rows, wrong = time.monotonic(), [], 0
    bench = Fp8Bench(kernel, template)
    environment = {**basic_environment(), "date": time.strftime("%Y-%m-%d", time.gmtime())}
    for text in ROWS:
        if options.only not in text or time.monotonic() - began > options.seconds:
            continue
        sizes = workload(text)
        points = bench.compiled_points(catalogue, sizes, options.more)
        print(f"{text}: {len(points)} points at {time.monotonic() - began:.0f} s", flush=True)
        row = bench.row(text, sizes, points)
        rows.append(row)
        wrong += len(row["wrong"])
        for each in row["points"][:12]:
            print(
                f"   {each['us']:9.1f} us {each['tflops']:6.0f} TFLOP/s  {each['point']:16}"
                f" {each['parameters']}",
                flush=True,
            )
        for each in row["finalists"]:
            print(
                f"   final {each['us']:9.1f} us {each['tflops']:6.0f} TFLOP/s, torch bf16"
                f" {each['bf16_us']:9.1f} us  {each['point']}",
                flush=True,
            )
        print(f"   wrong: {row['wrong']}", flush=True)
        write_json(options.out, {"environment": environment, "rows": rows})
    return 1 if wrong else 0


def _options() -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument("out", type=Path, metavar="OUT.json")
    more = parser.add_mutually_exclusive_group()
    for name, help_text in MORE.items():
        more.add_argument(
            f"--{name}", dest="more", action="store_const", const=name, help=help_text
        )
    parser.add_argument("--only", default="", help="text that a row contains")
    parser.add_argument("--seconds", type=float, default=240.0, help="begin no row after these")
    return parser.parse_args()


@dataclasses.dataclass(frozen=True)
class Screened:
    """A point with its time, and its error relative to the expected output's size."""

    point: Point
    us: float
    error: float


@dataclasses.dataclass(frozen=True)
class Sizes:
    """A row's dims, and what its kernel is compiled for."""

    dims: dict[str, int]
    causal: bool
    compiled: Items

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Of q, k, v and o."""
        return (self.dims["B"], self.dims["H"], self.dims["S_q"], self.dims["D"])

    @property
    def flop(self) -> float:
        batch, heads, length, columns = self.shape
        pairs = length * (length + 1) // 2 if self.causal else length * length
        return 4.0 * batch * heads * columns * pairs

    @property
    def values(self) -> str:
        """As gemm_sweep.described takes them."""
        return ",".join(f"{name}={size}" for name, size in self.dims.items())


def workload(text: str) -> Sizes:
    given = dict(item.split("=") for item in text.split(","))
    mask = given.pop("mask", "none")
    options = {"format": FORMAT, "dtype": "bf16", "mask": mask}
    dims = {name: int(size) for name, size in given.items()}
    compiled = {"D": dims["D"], **options}
    return Sizes(dims, mask != "none", tuple(sorted(compiled.items())))


def drawn_points(
    space: Space, template: TemplateSpec, more: str | None
) -> Iterator[tuple[str, Items]]:
    """The presets that suit; then each with masks apart, or tiles with what goes well with them."""
    for preset, apart in product(template.presets, (False, True) if more == "apart" else (None,)):
        changes = {} if apart is None else {"masks_apart": apart}
        parameters = preset_candidate(template, preset.name, space.compiled, changes).parameters
        if space.is_valid(parameters):
            yield preset.name + (APART if apart else ""), parameters
    if more != "grid":
        return
    tiles = ((2, 128), (2, 160), (2, 192), (2, 224), (3, 64), (3, 96), (3, 128))
    # Each alone, and any two of them together.
    changes: tuple[dict[str, Value], ...] = (
        {"ordered": True},
        {"skip_rescale": True},
        {"stages": 3},
        {"turned_stages": 3},
        {"turned_keys": 64},
        {"query": "registers"},
        {"turns": True},
        {"exp_polynomial": 1},
        {"exp_polynomial": 2},
        {"scheduler": "persistent"},
        {"heads_together": 8},
    )
    pairs = [{}, *changes, *({**a, **b} for a, b in combinations(changes, 2))]
    for (consumers, tile_n), change in product(tiles, pairs):
        given = {"consumers": consumers, "tile_n": tile_n, "heads_together": 32, **change}
        parameters = complete_parameters(template, given, space.compiled)
        if space.is_valid(parameters):
            yield "grid", parameters


class Fp8Bench:
    """Times points on the first GPU."""

    def __init__(self, kernel: KernelSpec, template: TemplateSpec) -> None:
        import cupy
        import torch

        self._kernel, self._template, self._torch, self._cupy = kernel, template, torch, cupy
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._torch_stream = torch.cuda.ExternalStream(self._stream.ptr)
        self._folder = tempfile.TemporaryDirectory(prefix="greenfast-cubins-")
        self._compiled: dict[Items, list[Point]] = {}
        self._modules: dict[int, Any] = {}

    def compiled_points(self, catalogue: Catalogue, sizes: Sizes, more: str | None) -> list[Point]:
        """The points that compile without spilling."""
        if sizes.compiled not in self._compiled:
            space = Space(self._template, sizes.compiled, device("h200"))
            drawn = {item[1]: item for item in drawn_points(space, self._template, more)}
            self._compiled[sizes.compiled] = compiled_without_spills(
                self._kernel, self._template, catalogue, sizes.compiled, drawn.values()
            )
        return self._compiled[sizes.compiled]

    def row(self, text: str, sizes: Sizes, points: list[Point]) -> Row:
        torch = self._torch
        with self._stream, torch.cuda.stream(self._torch_stream), torch.no_grad():
            tensors = self._tensors(sizes)
            expected = self._expected(tensors, sizes.causal)
            return self._timed(text, sizes, points, tensors, expected)

    def _tensors(self, sizes: Sizes) -> dict[str, Any]:
        torch = self._torch
        torch.manual_seed(SEED)
        tensors = {}
        for name in "qkv":
            numbers = torch.randn(*sizes.shape, device="cuda")
            scale = numbers.abs().amax(dim=(2, 3)) / 448.0
            codes = (numbers / scale[..., None, None]).to(torch.float8_e4m3fn)
            tensors[name] = codes.view(torch.uint8)
            tensors[f"{name}_scale"] = scale
        tensors["o"] = torch.zeros(*sizes.shape, device="cuda", dtype=torch.bfloat16)
        tensors["lse"] = torch.zeros(*sizes.shape[:3], device="cuda")
        return tensors

    def _numbers(self, tensors: dict[str, Any], name: str) -> Any:
        codes = tensors[name].view(self._torch.float8_e4m3fn).float()
        return codes * tensors[f"{name}_scale"][..., None, None]

    def _expected(self, tensors: dict[str, Any], causal: bool) -> Any:
        torch = self._torch
        q, k, v = (self._numbers(tensors, name) for name in "qkv")
        out = torch.empty_like(q)
        hidden = torch.ones(q.shape[2], q.shape[2], device="cuda", dtype=torch.bool).triu(1)
        for b, h in product(range(q.shape[0]), range(q.shape[1])):
            scores = q[b, h] @ k[b, h].T / math.sqrt(q.shape[3])
            if causal:
                scores.masked_fill_(hidden, -math.inf)
            out[b, h] = scores.softmax(dim=1) @ v[b, h]
        return out

    def _timed(
        self, text: str, sizes: Sizes, points: list[Point], tensors: dict[str, Any], expected: Any
    ) -> Row:
        yardstick = self._yardstick(sizes, tensors)
        results = sorted(self._screened(sizes, points, tensors, expected), key=lambda each: each.us)
        finalists = []
        for point in [each.point for each in results if each.error <= TOLERANCE][:FINALISTS]:
            ours, theirs = _in_turns(self._watch(point, sizes, tensors), yardstick)
            finalists.append(
                {
                    "point": point.name,
                    "parameters": dict(point.parameters),
                    "us": ours,
                    "tflops": sizes.flop / ours / 1e6,
                    "bf16_us": theirs,
                }
            )
        finalists.sort(key=lambda each: each["us"])
        return {
            "workload": text,
            "format": FORMAT,
            "wrong": [
                [each.point.name, each.error] for each in results if not each.error <= TOLERANCE
            ],
            "finalists": finalists,
            "points": [
                {
                    "point": each.point.name,
                    "us": round(each.us, 2),
                    "tflops": round(sizes.flop / each.us / 1e6, 1),
                    "error": round(each.error, 4),
                    "parameters": list(dict(each.point.parameters).values()),
                    "notes": [note.name for note in parse_notes(each.point.cubin.log)],
                }
                for each in results
            ],
        }

    def _yardstick(self, sizes: Sizes, tensors: dict[str, Any]) -> Any:
        """PyTorch's attention on the same numbers in bf16."""
        from greenfast.search.peers.duel import PeerCall, PeerStopwatch

        attention = self._torch.nn.functional.scaled_dot_product_attention
        halves = {name: self._numbers(tensors, name).bfloat16() for name in "qkv"}
        call = PeerCall(
            lambda given: {
                "o": attention(given["q"], given["k"], given["v"], is_causal=sizes.causal)
            },
            halves,
        )
        yardstick = PeerStopwatch([call], self._stream, DEADLINE_S, self._torch_stream)
        _warm_up(yardstick)
        return yardstick

    def _screened(
        self, sizes: Sizes, points: list[Point], tensors: dict[str, Any], expected: Any
    ) -> Iterator[Screened]:
        """Each point's time, and its error; points that are clearly slower are timed once."""
        size = float(expected.square().mean().sqrt())
        best_us = math.inf
        for point in points:
            watch = self._watch(point, sizes, tensors)
            samples = [watch()]
            if samples[0] < WORSE * best_us:
                samples += [watch() for _ in range(SCREEN_SAMPLES - 1)]
            us = _median(samples)
            best_us = min(best_us, us)
            tensors["o"].fill_(float("nan"))
            watch.again()
            self._torch.cuda.synchronize()
            error = float((tensors["o"].float() - expected).square().mean().sqrt()) / size
            yield Screened(point, us, error)

    def _watch(self, point: Point, sizes: Sizes, tensors: dict[str, Any]) -> Any:
        from greenfast.search.targets.cuda.launches import Loaded, Stopwatch

        if id(point) not in self._modules:
            path = Path(self._folder.name) / f"{id(point)}.cubin"
            path.write_bytes(point.cubin.code)
            self._modules[id(point)] = self._cupy.RawModule(path=str(path))
        launch = described(self._kernel, self._template, point.resolved, sizes.values)
        addresses = {name: tensor.data_ptr() for name, tensor in tensors.items()}
        loaded = Loaded(self._modules[id(point)], launch, addresses, [])
        return Stopwatch([loaded], self._stream, DEADLINE_S)


if __name__ == "__main__":
    raise SystemExit(main())
