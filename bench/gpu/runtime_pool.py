"""Other kernels of attention beside the shipped ones: recorded winners and presets."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Container, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from bench.gpu.runtime_shapes import Shape, shapes
from bench.gpu.set_files import Entry, built, bundle_bytes, group
from bench.results import Row, find_result, read_result
from greenfast.runtime.archive import read_archive
from greenfast.runtime.calls import Prepared, prepare, run
from greenfast.runtime.frameworks import framework_of
from greenfast.runtime.kernel_set import KernelSet
from greenfast.runtime.read_bundle import kernel_set
from greenfast.runtime.signatures import attention_call
from greenfast.runtime.tuned import shipped
from greenfast.search.cores import usable_cores
from greenfast.search.devices.facts import device
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.space.candidate import complete_parameters
from greenfast.search.space.space import Space
from greenfast.search.toolchain import Toolchain

TEMPLATES = ("decode", "mma", "wgmma")
VARIANTS = {  # results of attention_variants, by what their labels say
    "variant": "h200/attention_variants",
    "medium variant": "h100/medium_variants",
    "row sums variant": "h100/row_sums",
    "output variant": "h100/output_variants",
    "rest variant": "h100/rest_variants",
    "spread variant": "h100/spread_variants",
    "head variant": "h100/head_variants",
}
SHIPPED = " shipped "  # in the label of a shipped kernel that no other label stands for
Design = tuple[str, str]  # a template, and all of its parameters
LARGEST_ERROR = {"torch.bfloat16": 0.02, "torch.float16": 0.004}  # of the norm, by type


@dataclass(frozen=True)
class Point:
    """A point of a template; its compile-time values come from a shape."""

    template: str
    parameters: Row


def design(point: Point) -> Design:
    """Equal for points that render alike; a parameter that came later has its default."""
    template = _attention().template(point.template)
    return point.template, json.dumps(complete_parameters(template, point.parameters, ()))


@cache
def _attention() -> KernelSpec:
    return Catalogue([REPOSITORY_TEMPLATES]).kernel("attention")


def pool_points(kernel: KernelSpec) -> dict[str, Point]:
    """By label: winners of searches, presets of the fast templates, and what is shipped already."""
    points = {
        f"{row['template']} winner {row['workload']}": Point(row["template"], row["parameters"])
        for row in read_result("h200/attention_winners")["rows"]
        if row["template"] in TEMPLATES
    }
    for row in find_result("h200/hopper_rows").get("rows", ()):
        template = row.get("baseline", "").partition(":")[0]
        if row["kernel"] == kernel.name and row.get("parameters"):
            points[f"{template} winner {row['workload']}"] = Point(template, row["parameters"])
    for kind, result in VARIANTS.items():
        for row in find_result(result).get("rows", ()):
            best = row["points"][0]["parameters"]
            points[f"wgmma {kind} {row['workload']}"] = Point("wgmma", best)
    points |= {
        f"{template.name} {preset.name}": Point(template.name, dict(preset.parameters))
        for template in kernel.templates
        if template.name in TEMPLATES
        for preset in template.presets
    }
    return points | shipped_points()


def shipped_points() -> dict[str, Point]:
    """Those of the shipped sets, so that another set is made of no less."""
    points: dict[str, Point] = {}
    programs = (kernels.programs.values() for kernels in shipped("attention"))
    for program in chain.from_iterable(programs):
        point = Point(program.template, dict(program.parameters))
        if point not in points.values():
            points[f"{program.template}{SHIPPED}{program.source_digest[:8]}"] = point
    return points


def stored_points(result: Row) -> dict[str, Point]:
    """The points behind the labels of a stored result: those of the pool change with searches."""
    return {label: Point(**point) for label, point in result.get("points", {}).items()}


class Pool:
    """Kernels by compile-time values, each a set of its own."""

    @classmethod
    def of_points(cls, names: tuple[str, ...]) -> Pool:
        """Some points, for heads of 64 elements without a mask."""
        known = pool_points(Catalogue([REPOSITORY_TEMPLATES]).kernel("attention"))
        return cls({name: known[name] for name in names}, ((64, "none"),))

    def __init__(
        self,
        points: dict[str, Point] | None = None,
        heads: tuple[tuple[int, str], ...] = (),
        gpu: str = "h200",
        dtype: str = "bf16",
        only: Mapping[tuple[int, str], Container[str]] | None = None,  # labels by D and mask
    ) -> None:
        catalogue = Catalogue([REPOSITORY_TEMPLATES])
        kernel = catalogue.kernel("attention")
        points = pool_points(kernel) if points is None else points
        heads = heads or tuple(dict.fromkeys((shape.D, shape.mask) for shape in shapes()))
        entries: dict[Any, Entry] = {}
        for width, mask in heads:
            compiled = (("D", width), ("dtype", dtype), ("mask", mask))
            labels = points.keys() if only is None else only.get((width, mask), ())
            for label, point in points.items():
                if label not in labels:
                    continue
                entry = valid_entry(kernel, point, dict(compiled), label, gpu)
                if entry is not None:
                    key = entry.template, tuple(entry.parameters.items()), compiled
                    entries.setdefault(key, entry)
        self.points = points
        self.sets: list[tuple[Entry, KernelSet]] = []
        with tempfile.TemporaryDirectory(prefix="greenfast-pool-") as folder:
            toolchain = Toolchain(Path(folder), usable_cores())
            try:
                with ThreadPoolExecutor(usable_cores()) as threads:
                    kernels = threads.map(
                        lambda entry: _built(catalogue, kernel, entry, gpu, toolchain),
                        entries.values(),
                    )
                    for item in filter(None, kernels):
                        table = group(item.entry.compiled, {}, [("1", None, "k0")], ())
                        data = bundle_bytes(
                            kernel, [item], [table], device(gpu), name="pool", toolchain={}
                        )
                        path = Path(folder) / "pool.zip"
                        path.write_bytes(data)
                        self.sets.append((item.entry, kernel_set(read_archive(path), "pool")))
            finally:
                toolchain.close()
        print(f"pool: {len(self.sets)} kernels", flush=True)

    def functions(
        self,
        shape: Shape,
        q: Any,
        k: Any,
        v: Any,
        notes: Row,
        labels: Container[str] | None = None,
    ) -> dict[str, Callable[[], Any]]:
        """A call of each kernel that is compiled for the shape, and correct on it.

        `labels`: of these kernels alone.
        """
        expected = _expected(q, k, v, shape)
        framework = framework_of(q)
        assert framework is not None  # PyTorch's
        facts = {name: framework.facts(item) for name, item in zip("qkv", (q, k, v), strict=True)}
        call = attention_call(facts, shape.mask, None, grouped=True, lse=False)
        functions: dict[str, Callable[[], Any]] = {}
        for entry, kernels in self.sets:
            compiled = entry.compiled
            if (compiled["D"], compiled["mask"]) != (shape.D, shape.mask):
                continue
            label = entry.label
            if labels is not None and label not in labels:
                continue
            state = prepare(kernels, call, 0)  # type: ignore[arg-type]
            if not isinstance(state, Prepared):
                notes[label] = state.why[:160]
                continue
            functions[label] = _call(state, framework, q, k, v)
            if why := _wrong(functions[label](), expected):
                notes[label] = why
                del functions[label]
        return functions


def valid_entry(
    kernel: KernelSpec, point: Point, compiled: Row, label: str, gpu: str
) -> Entry | None:
    """The point for these compile-time values; None if the template excludes it."""
    template = kernel.template(point.template)
    if any(compiled[name] not in values for name, values in template.supports):
        return None
    items = tuple(compiled.items())
    parameters = complete_parameters(template, point.parameters, items)
    if Space(template, items, device(gpu)).why_not(parameters) is not None:
        return None
    return Entry(point.template, dict(parameters), compiled, "", label)


def _built(catalogue: Any, kernel: Any, entry: Entry, gpu: str, toolchain: Toolchain) -> Any:
    try:
        return built(catalogue, kernel, entry, device(gpu), toolchain)
    except SystemExit as error:
        print(f"left out: {error}", flush=True)
        return None


def _call(state: Prepared, framework: Any, q: Any, k: Any, v: Any) -> Callable[[], Any]:
    import torch

    def function() -> Any:
        o = torch.empty_like(q)
        run(state.plan, framework, {"q": q, "k": k, "v": v, "o": o}, q, framework.stream(0))
        return o

    return function


def _expected(q: Any, k: Any, v: Any, shape: Shape) -> Any:
    """PyTorch's output."""
    import torch

    return torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=shape.is_causal, enable_gqa=shape.H_kv != shape.H
    )


def _wrong(o: Any, expected: Any) -> str:
    """Why the output differs from PyTorch's; empty when it is close. The gates did the rest."""
    error = ((o.float() - expected.float()).norm() / expected.float().norm()).item()
    limit = LARGEST_ERROR[str(o.dtype)]
    return "" if error < limit else f"wrong: relative error {error:.3g}"


def own_times(row: Row) -> dict[str, float]:
    """Times of our kernels in a row, by label."""
    return {
        name: item["us"] if isinstance(item, dict) else item
        for name, item in row["times"].items()
        if name.partition(" ")[0] in TEMPLATES
    }
