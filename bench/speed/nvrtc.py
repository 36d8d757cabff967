"""NVRTC compiles a second: attention candidates through the toolchain, uncached, on 1 and on all.

python -m bench.speed.nvrtc [--save]
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.command_line import add_save, script_parser
from bench.environment import publish
from bench.results import Row
from greenfast.search.cores import usable_cores
from greenfast.search.devices.facts import device
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.render import RenderedSource, render
from greenfast.search.space.space import Space, resolve
from greenfast.search.toolchain import CompileFailed, Cubin, Toolchain

COUNT = 24


def sources(count: int, seed: int) -> Iterator[RenderedSource]:
    """Random valid wmma candidates, rendered."""
    catalogue = Catalogue.from_environment()
    kernel = catalogue.kernel("attention")
    template = kernel.template("wmma")
    compiled = kernel.workload("mission").compile_time(kernel)
    points = Space(template, compiled, device("h200")).points
    for point in random.Random(seed).sample(points, count):
        yield render(
            kernel,
            template,
            resolve(template, point, compiled, device("h200")),
            catalogue.include_dirs,
        )


def measure(children: int) -> Row:
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(children) as pool:
        toolchain = Toolchain(Path(folder), children)

        def compile_source(source: RenderedSource) -> Cubin | CompileFailed:
            return toolchain.compile(source, "sm_90")

        list(pool.map(compile_source, sources(children, 1)))  # starts every child
        texts = list(sources(COUNT, 2))
        started = time.perf_counter()
        outcomes = list(pool.map(compile_source, texts))
        wall_s = time.perf_counter() - started
        toolchain.close()
    cubins = [outcome for outcome in outcomes if isinstance(outcome, Cubin)]
    compile_s = sorted(cubin.compile_s for cubin in cubins)
    return {
        "children": children,
        "compiled": len(cubins),
        "refused": COUNT - len(cubins),
        "wall_s": round(wall_s, 3),
        "compiles_per_s": round(COUNT / wall_s, 2),
        "compiles_per_s_per_child": round(COUNT / wall_s / children, 2),
        "compile_median_s": round(compile_s[len(compile_s) // 2], 3),
    }


def main() -> None:
    parser = script_parser(__doc__)
    add_save(parser)
    options = parser.parse_args()
    rows = [measure(children) for children in sorted({1, usable_cores()})]
    publish("nvrtc", rows, save=options.save)


if __name__ == "__main__":
    main()
