"""Kernels of gemm for greenfast.linear: the presets, some points near them, and their calls."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Container, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from bench.gpu.runtime_pool import Point, valid_entry
from bench.gpu.set_files import Built, Entry, built, bundle_bytes, group
from bench.results import Row
from greenfast.runtime.archive import read_archive
from greenfast.runtime.calls import Call, Prepared, prepare, run
from greenfast.runtime.fallbacks import torch_linear
from greenfast.runtime.frameworks import framework_of
from greenfast.runtime.kernel_set import KernelSet
from greenfast.runtime.read_bundle import kernel_set
from greenfast.runtime.signatures import linear_call, linear_tensors
from greenfast.search.cores import usable_cores
from greenfast.search.devices.facts import device
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.toolchain import Toolchain

LARGEST_ERROR = {"torch.bfloat16": 0.01, "torch.float16": 0.002}  # of the norm, by type
FEW_TOKENS = 192  # rows up to which turned tiles of few tokens are worth a look
WAVES_OF_COPIES = 8  # steps of K that a block spends on a tile's end, which turns hide


@dataclass(frozen=True)
class Form:
    """What follows the product; one compile-time group of gemm for each type."""

    activation: str = "none"  # as greenfast.linear has it
    bias: bool = False
    residual: bool = False

    @property
    def name(self) -> str:
        parts = [
            "bias" if self.bias else "",
            self.activation if self.activation != "none" else "",
            "residual" if self.residual else "",
        ]
        return " ".join(filter(None, parts)) or "product"

    def compiled(self, dtype: str) -> Row:
        return {
            "dtype": dtype,
            "activation": "gelu" if self.activation == "gelu_tanh" else self.activation,
            "bias": "yes" if self.bias else "no",
            "residual": "yes" if self.residual else "no",
            "turned_a": 0,
            "turned_b": 0,
        }


PRODUCT = Form()
FORMS = (
    PRODUCT,
    Form(bias=True),
    Form(residual=True),
    Form("silu"),
    Form(bias=True, residual=True),
    Form("gelu_tanh", bias=True),
    Form("silu", bias=True),
)
NEAR: Mapping[str, Row] = {
    "wide_alone, 8 rows": {"tile_n": 256, "stages": 4, "store_buffers": 2, "raster_rows": 8},
    "wide, 16 rows": {
        "tile_n": 256, "stages": 4, "cluster_rows": 2, "store_buffers": 2, "raster_rows": 16,
    },
    "turns 128, 2 rows": {
        "turns": True, "tile_n": 128, "consumer_rows": 128, "stages": 6, "store_buffers": 2,
        "cluster_rows": 2,
    },
    "turns 128, 2 columns": {
        "turns": True, "tile_n": 128, "consumer_rows": 128, "stages": 6, "store_buffers": 2,
        "cluster_columns": 2, "raster_rows": 4,
    },
    "turns 160, 2 rows": {
        "turns": True, "tile_n": 160, "consumer_rows": 128, "stages": 5, "store_buffers": 2,
        "cluster_rows": 2,
    },
    "turns 64 by 256, 2 rows": {
        "turns": True, "tile_n": 256, "consumer_rows": 64, "stages": 5, "store_buffers": 1,
        "cluster_rows": 2,
    },
    "turns 64 by 192, 2 rows": {
        "turns": True, "tile_n": 192, "consumer_rows": 64, "stages": 6, "store_buffers": 1,
        "cluster_rows": 2,
    },
    "turns 64 by 256": {
        "turns": True, "tile_n": 256, "consumer_rows": 64, "stages": 5, "store_buffers": 1,
        "raster_rows": 16,
    },
    "turns 192": {
        "turns": True, "tile_n": 192, "consumer_rows": 128, "stages": 4, "store_buffers": 2,
        "raster_rows": 16,
    },
    "turns, turned 64": {
        "turns": True, "swap": True, "tile_n": 64, "consumer_rows": 128, "stages": 8,
        "store_buffers": 1, "raster_rows": 4,
    },
    "square, 4 parts": {
        "tile_n": 128, "stages": 5, "scheduler": "grid", "split_k": 4, "store_buffers": 1,
    },
    "tokens_32": {
        "swap": True, "tile_n": 32, "consumers": 1, "stages": 8, "scheduler": "grid",
        "split_k": 2, "blocks_per_sm": 2, "store_buffers": 1, "raster_rows": 16,
    },
    "tokens_128": {
        "swap": True, "tile_n": 128, "consumers": 1, "stages": 8, "scheduler": "grid",
        "split_k": 2, "store_buffers": 1, "raster_rows": 16,
    },
}  # fmt: skip


def gemm() -> KernelSpec:
    return Catalogue([REPOSITORY_TEMPLATES]).kernel("gemm")


def points() -> dict[str, Point]:
    """By label: the presets of wgmma, and NEAR."""
    template = gemm().template("wgmma")
    return {
        **{preset.name: Point("wgmma", dict(preset.parameters)) for preset in template.presets},
        **{name: Point("wgmma", dict(parameters)) for name, parameters in NEAR.items()},
    }


def likely(labels: Iterable[str], m: int, n: int, k: int, count: int) -> list[str]:
    """The points whose tiles fill the GPU best for these sizes, by the waves that they need.

    The model: each wave takes as long as its tiles' products, or as the bytes that they read.
    """
    everything = points()
    cost = {label: _cost(everything[label].parameters, m, n, k) for label in labels}
    return sorted(cost, key=lambda label: cost[label])[:count]


def _cost(parameters: Row, m: int, n: int, k: int) -> float:
    swap = bool(parameters.get("swap"))
    turns = bool(parameters.get("turns"))
    consumers = 1 if turns else int(parameters.get("consumers", 2))
    rows = consumers * int(parameters.get("consumer_rows", 64))
    columns, split = int(parameters["tile_n"]), int(parameters.get("split_k", 1))
    if swap and columns < 128 and m > FEW_TOKENS:
        return float("inf")
    resident = int(parameters.get("blocks_per_sm", 1))
    tiles = ceil((n if swap else m) / rows) * ceil((m if swap else n) / columns) * split
    waves = ceil(tiles / (132 * resident))
    steps = k / 64 / split + (2 if turns else WAVES_OF_COPIES)
    # A step of K: products at 4096 flop a cycle, or its bytes at 64 a cycle from L2.
    step = max(rows * columns * 64 * 2 / 8192, (rows + columns) * 128 / 64)
    return waves * steps * step * resident


class LinearPool:
    """Points compiled for a form and a type, and their calls."""

    def __init__(
        self, forms: Iterable[Form], dtype: str, gpu: str, some: Mapping[str, Point]
    ) -> None:
        kernel = gemm()
        entries = [
            (form, entry)
            for form in forms
            for label, point in some.items()
            if (entry := valid_entry(kernel, point, form.compiled(dtype), label, gpu))
        ]
        self.kernels: dict[tuple[Form, str], KernelSet] = {}
        for (form, entry), item in zip(entries, compiled(kernel, entries, gpu), strict=True):
            if item is not None:
                self.kernels[form, entry.label] = _alone(kernel, item, gpu)
        print(f"pool: {len(self.kernels)} kernels", flush=True)

    def functions(
        self, form: Form, tensors: Mapping[str, Any], labels: Container[str], notes: Row
    ) -> dict[str, Callable[[], Any]]:
        """A call of each of these kernels that is correct on the tensors."""
        framework = framework_of(tensors["a"])
        assert framework is not None  # PyTorch's
        facts = linear_tensors({name: framework.facts(item) for name, item in tensors.items()})
        call = linear_call(facts, form.activation)  # type: ignore[arg-type]
        assert isinstance(call, Call)  # the bench's own sizes
        expected = library(form, tensors)().float()
        functions: dict[str, Callable[[], Any]] = {}
        for (of_form, label), kernels in self.kernels.items():
            if of_form != form or label not in labels:
                continue
            state = prepare(kernels, call, 0)
            if not isinstance(state, Prepared):
                notes[label] = state.why[:160]
                continue
            function = _call(state, framework, tensors)
            got = function().float()
            error = ((got - expected).norm() / expected.norm()).item()
            if error < LARGEST_ERROR[str(tensors["a"].dtype)]:
                functions[label] = function
            else:
                notes[label] = f"wrong: relative error {error:.3g}"
        return functions


def compiled(kernel: KernelSpec, entries: Any, gpu: str) -> list[Built | None]:
    catalogue = Catalogue([REPOSITORY_TEMPLATES])
    with (
        tempfile.TemporaryDirectory(prefix="greenfast-pool-") as folder,
        ThreadPoolExecutor(usable_cores()) as threads,
    ):
        toolchain = Toolchain(Path(folder), usable_cores())

        def of(pair: tuple[Form, Entry]) -> Built | None:
            try:
                item = built(catalogue, kernel, pair[1], device(gpu), toolchain)
            except SystemExit as error:
                print(f"left out: {error}", flush=True)
                return None
            spilled = any(figures.spill_bytes for figures in item.figures)
            return None if spilled else item

        try:
            return list(threads.map(of, entries))
        finally:
            toolchain.close()


def _alone(kernel: KernelSpec, item: Built, gpu: str) -> KernelSet:
    table = group(item.entry.compiled, {}, [("1", None, "k0")], ())
    data = bundle_bytes(kernel, [item], [table], device(gpu), name="pool", toolchain={})
    with tempfile.TemporaryDirectory(prefix="greenfast-pool-") as folder:
        path = Path(folder) / "pool.zip"
        path.write_bytes(data)
        return kernel_set(read_archive(path), "pool")


def _call(state: Prepared, framework: Any, tensors: Mapping[str, Any]) -> Callable[[], Any]:
    import torch

    a = tensors["a"]
    unread = {"bias": a, "residual": a}

    def function() -> Any:
        c = torch.empty(a.shape[0], tensors["b"].shape[0], dtype=a.dtype, device=a.device)
        run(state.plan, framework, {**unread, **tensors, "c": c}, a, framework.stream(0))
        return c

    return function


def library(form: Form, tensors: Mapping[str, Any]) -> Callable[[], Any]:
    """PyTorch's operations one after another, which run where no kernel does."""
    bias, residual = tensors.get("bias"), tensors.get("residual")
    return lambda: torch_linear(tensors["a"], tensors["b"], bias, form.activation, residual)


def inputs(form: Form, m: int, n: int, k: int, dtype: str) -> dict[str, Any]:
    """Random tensors of a layer; outputs are of the size of normal numbers."""
    import torch

    kind = {"bf16": torch.bfloat16, "fp16": torch.float16}[dtype]

    def new(*shape: int) -> Any:
        return torch.randn(shape, device="cuda", dtype=kind)

    tensors = {"a": new(m, k), "b": new(n, k) * k**-0.5}
    if form.bias:
        tensors["bias"] = new(n)
    if form.residual:
        tensors["residual"] = new(m, n)
    return tensors
