"""Candidates for long sequences, timed on a GPU: TFLOP/s beside registers, spills and occupancy.

    python -m bench.gpu.long_sequences OUT.json [LIST ...]

Each line of a LIST (bench/gpu/long_sequences.txt unless named) is a workload, a folder of templates (`.` for the
repository's), a template, and NAME=VALUE settings; `#` begins a comment. Everything is compiled first, then
taken through the gates on cuda:0 with hot caches, so that a time is never that of a wrong kernel. Rows are
written as they come.
"""

from __future__ import annotations

import json
import platform
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

from greenfast.search.cores import usable_cores
from greenfast.search.devices.occupancy import occupancy
from greenfast.search.errors import GreenfastError, UsageError
from greenfast.search.gates import GateLimits
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.kernels.expressions import Value
from greenfast.search.kernels.spec import TemplateSpec
from greenfast.search.loop.evaluate import EvaluationContext, evaluate
from greenfast.search.oracle.cases import workload_case
from greenfast.search.space.candidate import Candidate, Origin, OriginKind, complete_parameters
from greenfast.search.space.space import Space, resolve
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.toolchain import CompileFailed, Toolchain
from greenfast.search.verdict import performance_of, verdict_name

KERNEL = "attention"


@dataclass(frozen=True)
class Entry:
    """One line of a list."""

    workload: str
    root: str
    template: str
    settings: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        settings = (f"{name}={value}" for name, value in self.settings)
        return " ".join([self.workload, self.root, self.template, *settings])


def entries(paths: list[str]) -> list[Entry]:
    found = []
    for path in paths:
        for line in Path(path).read_text().splitlines():
            words = line.partition("#")[0].split()
            if words:
                settings = tuple(
                    (word.partition("=")[0], word.partition("=")[2]) for word in words[3:]
                )
                found.append(Entry(words[0], words[1], words[2], settings))
    return list(dict.fromkeys(found))


class Shop:
    """One target and toolchain, and a catalogue a folder of templates."""

    def __init__(self, roots: set[str]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="greenfast-bench-"))
        self.catalogues = {
            root: Catalogue([REPOSITORY_TEMPLATES, *([Path(root)] if root != "." else [])])
            for root in roots
        }
        self.toolchain = Toolchain(self.folder, usable_cores())
        includes = tuple(
            dict.fromkeys(
                path for catalogue in self.catalogues.values() for path in catalogue.include_dirs
            )
        )
        self.target = open_target("cuda:0", TargetSettings(self.folder, includes, 1))

    def made(self, entry: Entry) -> tuple[EvaluationContext, Candidate, str | None]:
        """The entry's bench and candidate, and why its space excludes it."""
        catalogue = self.catalogues[entry.root]
        kernel = catalogue.kernel(KERNEL)
        template, workload = kernel.template(entry.template), kernel.workload(entry.workload)
        compiled = workload.compile_time(kernel)
        given = {name: value_of(template, name, text) for name, text in entry.settings}
        parameters = complete_parameters(template, given, compiled)
        if left := {name for name, value in given.items() if dict(parameters)[name] != value}:
            raise UsageError(
                f"no meaning beside the others: {', '.join(sorted(left))}", code="inactive"
            )
        candidate = Candidate(KERNEL, template.name, parameters, Origin(OriginKind.SEEDED))
        context = EvaluationContext(
            kernel,
            compiled,
            (workload,),
            self.target,
            self.toolchain,
            catalogue.include_dirs,
            GateLimits(max_spill_bytes=None),
            0,
            mode="hot",
        )
        return (
            context,
            candidate,
            Space(template, compiled, self.target.device).why_not(candidate.parameters),
        )


def value_of(template: TemplateSpec, name: str, text: str) -> Value:
    """The value that a setting spells; the text itself, which is refused later, when there is none."""
    return next(
        (value for value in template.parameter(name).values if str(value).lower() == text.lower()),
        text,
    )


def compiled_figures(shop: Shop, entry: Entry) -> dict:
    try:
        context, candidate, why = shop.made(entry)
        if why is not None:
            return {"excluded": why}
        source = context.render(candidate)
        cubin = shop.toolchain.compile(source, shop.target.device.arch)
    except GreenfastError as error:
        return {"excluded": str(error)}
    if isinstance(cubin, CompileFailed):
        return {"excluded": cubin.sentence}
    template = context.kernel.template(candidate.template)
    point, first = resolve(template, candidate.parameters, context.compiled), cubin.entries[0]
    held = occupancy(
        shop.target.device,
        first.registers,
        point.threads_per_block,
        point.smem_dynamic_bytes + first.smem_static_bytes,
    )
    flop = context.kernel.work_flop(workload_case(context.workloads[0], 0).values(context.kernel))
    return {
        "flop": flop,
        "registers": first.registers,
        "spill_bytes": first.spill_bytes,
        "smem_bytes": point.smem_dynamic_bytes,
        "blocks_per_sm": held.blocks_per_sm,
        "limited_by": held.limited_by,
    }


def timed(shop: Shop, entry: Entry, flop: float) -> dict:
    context, candidate, _ = shop.made(entry)
    began = time.perf_counter()
    verdict = evaluate(candidate, context).verdict
    evidence = performance_of(verdict)
    sentence = getattr(verdict, "sentence", "") or getattr(verdict, "message", "")
    row = {
        "verdict": verdict_name(verdict),
        "sentence": sentence,
        "seconds": round(time.perf_counter() - began, 2),
    }
    if evidence and evidence.timings:
        timing = evidence.timings[0]
        row |= {
            "us": round(timing.time_median_us, 3),
            "tflops": round(flop / timing.time_median_us / 1e6, 1),
            "detail": dict(timing.detail),
            "note": timing.note,
            "samples": timing.samples,
        }
    return row


def main(out: Path, wanted: list[Entry]) -> None:
    shop = Shop({one.root for one in wanted})
    shop.target.prepare()
    environment = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "cores": usable_cores(),
        "python": platform.python_version(),
        **dict(shop.toolchain.identity),
        **dict(shop.target.identity()),
    }
    rows = []
    try:
        with ThreadPoolExecutor(usable_cores()) as pool:
            figures = list(pool.map(lambda one: compiled_figures(shop, one), wanted))
        for entry, found in zip(wanted, figures):
            row = {"candidate": entry.text, **found}
            if "excluded" not in found:
                row |= timed(shop, entry, found["flop"])
            rows.append(row)
            out.write_text(json.dumps({"environment": environment, "rows": rows}) + "\n")
            print(line(row), flush=True)
    finally:
        shop.target.close()
        shop.toolchain.close()


def line(row: dict) -> str:
    if "excluded" in row:
        return f"   excluded  {row['candidate']}: {row['excluded'][:120]}"
    if "us" not in row:
        return f"   {row['verdict']}  {row['candidate']}: {row['sentence'][:160]}"
    return (
        f"{row['us']:9.2f} us {row['tflops']:6.1f} TFLOP/s  {row['registers']} registers, "
        f"{row['spill_bytes']} spilled, {row['blocks_per_sm']} blocks an SM, "
        f"{row['detail'].get('sm_clock_mhz', 0):.0f} MHz  {row['candidate']}"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), entries(sys.argv[2:] or [str(Path(__file__).with_suffix(".txt"))]))
