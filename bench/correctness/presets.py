"""Is every preset of every kernel right, in each group of options that it is for, on several seeds?

    python -m bench.correctness.presets OUT.json [--target cuda:0] [--seeds 3] [--minutes 8] [--kernels attention ...]

Judged by the correctness gate: the lengths derived from its tiles, the hard inputs, strides. A group is a choice of what is known at
compile time: all combinations of the options at D = 64 (or where there is no such dim), and for each other D the first and the
last values of each option. What a template or its constraints exclude is counted apart. Rows that OUT.json holds of the target
and of the kernel's files as they are stay; the next run goes on. Exits 1 when one is not right.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[2]

from greenfast.search.cores import usable_cores
from greenfast.search.digest import digest
from greenfast.search.gates import GateLimits
from greenfast.search.gates.correctness import CorrectnessGate
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.kernels.expressions import Value
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.loop.evaluate import EvaluationContext
from greenfast.search.render import RenderedSource
from greenfast.search.space.candidate import Candidate, preset_candidate
from greenfast.search.space.space import Space
from greenfast.search.targets import Target, TargetSettings, open_target
from greenfast.search.toolchain import Cubin, Toolchain
from greenfast.search.verdict import Outcome

KERNELS, COMMON_D = ("attention", "attention_fp8", "rmsnorm"), 64
FIRST_SEED, RUN_DEADLINE_S = 101, 60.0
Row = dict[str, Any]


@dataclass(frozen=True)
class Work:
    """One preset in one group on one seed."""

    kernel: KernelSpec
    template: str
    preset: str
    candidate: Candidate
    compiled: tuple[tuple[str, Value], ...]
    seed: int

    def row(self) -> Row:
        return {
            "kernel": self.kernel.name,
            "kernel_digest": digest(self.kernel)[:12],
            "template": self.template,
            "preset": self.preset,
            "group": dict(self.compiled),
            "seed": self.seed,
        }


def main() -> int:
    chosen, end = _arguments(), time.monotonic()
    end += 60.0 * chosen.minutes
    catalogue = Catalogue([REPOSITORY_TEMPLATES])
    with tempfile.TemporaryDirectory(prefix="greenfast-presets-") as name:
        toolchain = Toolchain(Path(name), usable_cores())
        target = open_target(
            chosen.target, TargetSettings(Path(name), catalogue.include_dirs, 1, RUN_DEADLINE_S)
        )
        target.prepare()
        try:
            wanted, excluded = [], 0
            for kernel in chosen.kernels:
                found, out_of_space = works(catalogue.kernel(kernel), target, chosen.seeds)
                wanted, excluded = wanted + found, excluded + out_of_space
            rows = known(chosen.out, wanted)
            done = {_key(one) for one in rows}
            left = [one for one in wanted if _key(one.row()) not in done]
            identity = {**dict(toolchain.identity), **dict(target.identity())}
            for row in judged(left, catalogue, toolchain, target, end):
                rows.append(row)
                if row["outcome"] != "passed":
                    print(json.dumps(row), flush=True)
                if len(rows) % 50 == 0:
                    save(chosen, rows, excluded, len(wanted), identity)
                    print(f"{len(rows)} judged", flush=True)
            found = save(chosen, rows, excluded, len(wanted), identity)
            print(json.dumps(found["found"]), flush=True)
        finally:
            target.close()
            toolchain.close()
    return 1 if any(one["outcome"] != "passed" for one in rows) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--target", default="cuda:0")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--kernels", nargs="+", choices=KERNELS, default=KERNELS)
    return parser.parse_args()


def groups(kernel: KernelSpec) -> Iterator[dict[str, Value]]:
    """What is known at compile time: every choice of options at the common D, two choices at each other D."""
    options = [option.values for option in kernel.options]
    names = [option.name for option in kernel.options]
    depths = [dim for dim in kernel.dims if dim.time == "compile"]
    if not depths:
        yield from (dict(zip(names, values)) for values in product(*options))
        return
    (depth,) = depths
    for size in depth.values:
        picked = (
            product(*options)
            if size == COMMON_D
            else ([option[0] for option in options], [option[-1] for option in options])
        )
        for values in picked:
            yield {depth.name: size, **dict(zip(names, values))}


def works(kernel: KernelSpec, target: Target, seeds: int) -> tuple[list[Work], int]:
    """Every preset in every group that it is for; and how many presets and groups do not go together."""
    found, excluded = [], 0
    for template in kernel.templates:
        supported = dict(template.supports)
        for preset in template.presets:
            for group in groups(kernel):
                compiled = tuple(group.items())
                fits = all(
                    group[name] in values for name, values in supported.items() if name in group
                )
                candidate = preset_candidate(template, preset.name, compiled) if fits else None
                if (
                    candidate is None
                    or Space(template, compiled, target.device).why_not(candidate.parameters)
                    is not None
                ):
                    excluded += 1
                    continue
                found += [
                    Work(
                        kernel, template.name, preset.name, candidate, compiled, FIRST_SEED + number
                    )
                    for number in range(seeds)
                ]
    return found, excluded


def judged(
    left: list[Work], catalogue: Catalogue, toolchain: Toolchain, target: Target, end: float
) -> Iterator[Row]:
    """Rows as they come, on all cores; what the time does not allow is not begun."""

    def judge(work: Work) -> Row | None:
        if time.monotonic() > end:
            return None
        context = EvaluationContext(
            work.kernel,
            work.compiled,
            (),
            target,
            toolchain,
            catalogue.include_dirs,
            GateLimits(max_spill_bytes=None),
            work.seed,
        )
        source = context.render(work.candidate)
        if not isinstance(source, RenderedSource):
            return {**work.row(), "outcome": "not rendered", "sentence": source.message}
        cubin = toolchain.compile(source, target.device.arch)
        if not isinstance(cubin, Cubin):
            return {**work.row(), "outcome": "not compiled", "sentence": str(cubin)[:300]}
        result = CorrectnessGate().judge(context.subject(work.candidate, source, cubin))
        if result.outcome is Outcome.PASSED:
            return {**work.row(), "outcome": "passed"}
        return {**work.row(), "outcome": result.outcome.value, "sentence": result.sentence}

    with ThreadPoolExecutor(usable_cores()) as pool:
        yield from (row for row in pool.map(judge, left) if row is not None)


def known(out: Path, wanted: list[Work]) -> list[Row]:
    """Rows of an earlier run that are still asked for."""
    if not out.is_file():
        return []
    keys = {_key(one.row()) for one in wanted}
    return [one for one in json.loads(out.read_text())["rows"] if _key(one) in keys]


def _key(row: Row) -> str:
    return json.dumps(
        [row[name] for name in ("kernel", "kernel_digest", "template", "preset", "group", "seed")]
    )


def save(
    chosen: argparse.Namespace,
    rows: list[Row],
    excluded: int,
    wanted: int,
    identity: dict[str, str],
) -> Row:
    environment = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "cores": usable_cores(),
        "python": platform.python_version(),
        **identity,
    }
    found = {
        "target": chosen.target,
        "checks": len(rows),
        "not judged yet": wanted - len(rows),
        "excluded": excluded,
        "presets": len({(one["kernel"], one["template"], one["preset"]) for one in rows}),
        "not right": sum(one["outcome"] != "passed" for one in rows),
    }
    kept = {"environment": environment, "found": found, "rows": rows}
    chosen.out.write_text(json.dumps(kept) + "\n")
    return kept


if __name__ == "__main__":
    sys.exit(main())
