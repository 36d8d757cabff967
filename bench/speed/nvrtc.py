"""NVRTC compiles a second: attention candidates through the toolchain, nothing cached, on 1 core and on all."""

from __future__ import annotations

import random
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.environment import publish
from greenfast.search.cores import usable_cores
from greenfast.search.devices.facts import device
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.render import render
from greenfast.search.space.candidate import Candidate, Origin, OriginKind
from greenfast.search.space.space import Space, resolve
from greenfast.search.toolchain import Cubin, Toolchain

COUNT = 24


def sources(count: int, seed: int):
    """Random valid wmma candidates, rendered."""
    catalogue = Catalogue.from_environment()
    kernel = catalogue.kernel("attention")
    template = kernel.template("wmma")
    compiled = kernel.workload("mission").compile_time(kernel)
    for point in random.Random(seed).sample(
        Space(template, compiled, device("h200")).points, count
    ):
        candidate = Candidate(kernel.name, template.name, point, Origin(OriginKind.SAMPLED))
        yield render(
            kernel, template, candidate, resolve(template, point, compiled), catalogue.include_dirs
        )


def measure(children: int) -> dict:
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(children) as pool:
        toolchain = Toolchain(Path(folder), children)
        warm = list(sources(children, 1))
        list(pool.map(lambda one: toolchain.compile(one, "sm_90"), warm))
        texts = list(sources(COUNT, 2))
        started = time.perf_counter()
        done = list(pool.map(lambda one: toolchain.compile(one, "sm_90"), texts))
        wall_s = time.perf_counter() - started
        toolchain.close()
    good = [one for one in done if isinstance(one, Cubin)]
    return {
        "children": children,
        "compiled": len(good),
        "refused": COUNT - len(good),
        "wall_s": round(wall_s, 3),
        "compiles_per_s": round(COUNT / wall_s, 2),
        "compiles_per_s_per_child": round(COUNT / wall_s / children, 2),
        "compile_median_s": round(sorted(one.compile_s for one in good)[len(good) // 2], 3),
    }


if __name__ == "__main__":
    publish("nvrtc", [measure(children) for children in sorted({1, usable_cores()})])
