"""Candidates for long sequences, timed on a GPU: TFLOP/s beside registers, spills and occupancy.

    python -m bench.gpu.long_sequences OUT.json [LIST ...]

Each line of a LIST (by default bench/gpu/long_sequences.txt) is a workload, a folder of templates
(`.` for the repository's), a template, and NAME=VALUE settings; `#` begins a comment. All
candidates are compiled first and then pass the gates on cuda:0 with hot caches, so that only
correct kernels are timed. Rows are written as they come.
"""

from __future__ import annotations

import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bench.command_line import require_gpu, script_parser
from bench.environment import target_environment
from bench.results import Row, write_json
from greenfast.search.cores import usable_cores
from greenfast.search.devices.occupancy import occupancy
from greenfast.search.errors import GreenfastError, UsageError
from greenfast.search.gates import GateLimits
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.kernels.expressions import Value
from greenfast.search.kernels.spec import TemplateSpec
from greenfast.search.loop.evaluate import EvaluationContext, evaluate, prepare
from greenfast.search.oracle.cases import workload_case
from greenfast.search.space.candidate import Candidate, Origin, OriginKind, complete_parameters
from greenfast.search.space.space import Space
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.toolchain import Toolchain
from greenfast.search.verdict import Rejected, performance_of, verdict_name

KERNEL = "attention"
LIST = Path(__file__).with_suffix(".txt")


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


def entries(paths: list[Path]) -> list[Entry]:
    """The different entries of all lists, in order."""
    lines = (line.partition("#")[0].split() for path in paths for line in path.open())
    return list(dict.fromkeys(entry_of(words) for words in lines if words))


def entry_of(words: list[str]) -> Entry:
    workload, root, template, *settings = words
    pairs = (setting.partition("=") for setting in settings)
    return Entry(workload, root, template, tuple((name, value) for name, _, value in pairs))


class Roots:
    """One target and toolchain, and a catalogue for each folder of templates."""

    def __init__(self, roots: set[str], folder: Path) -> None:
        self.catalogues = {
            root: Catalogue([REPOSITORY_TEMPLATES, *([Path(root)] if root != "." else [])])
            for root in roots
        }
        self.toolchain = Toolchain(folder, usable_cores())
        catalogues = self.catalogues.values()
        includes = dict.fromkeys(path for known in catalogues for path in known.include_dirs)
        self.target = open_target("cuda:0", TargetSettings(folder, tuple(includes), 1))
        self.target.prepare()

    def candidate(self, entry: Entry) -> tuple[EvaluationContext, Candidate]:
        """The entry's context and candidate; UsageError for a point that its space excludes."""
        catalogue = self.catalogues[entry.root]
        kernel = catalogue.kernel(KERNEL)
        template, workload = kernel.template(entry.template), kernel.workload(entry.workload)
        compiled = workload.compile_time(kernel)
        given = {name: value_of(template, name, text) for name, text in entry.settings}
        parameters = complete_parameters(template, given, compiled)
        if inactive := {name for name, value in given.items() if dict(parameters)[name] != value}:
            raise UsageError(
                f"inactive with the other settings: {', '.join(sorted(inactive))}", code="inactive"
            )
        if why := Space(template, compiled, self.target.device).why_not(parameters):
            raise UsageError(why, code="excluded")
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
        return context, Candidate(KERNEL, template.name, parameters, Origin(OriginKind.SEEDED))

    def close(self) -> None:
        self.target.close()
        self.toolchain.close()


def value_of(template: TemplateSpec, name: str, text: str) -> Value:
    """The parameter's value that `text` spells; else `text`, which is refused later."""
    values = template.parameter(name).values
    return next((value for value in values if str(value).lower() == text.lower()), text)


def compiled_figures(roots: Roots, entry: Entry) -> Row:
    """Registers, spills, shared memory and occupancy; or why the candidate is excluded."""
    try:
        context, candidate = roots.candidate(entry)
        subject = prepare(candidate, context)
    except GreenfastError as error:
        return {"excluded": str(error)}
    if isinstance(subject, Rejected):
        return {"excluded": subject.sentence}
    point, first = subject.point, subject.machine_code.entries[0]
    occupied = occupancy(
        roots.target.device,
        first.registers,
        point.threads_per_block,
        point.smem_dynamic_bytes + first.smem_static_bytes,
    )
    values = workload_case(context.workloads[0], 0).values(context.kernel)
    return {
        "flop": context.kernel.work_flop.amount(values),
        "registers": first.registers,
        "spill_bytes": first.spill_bytes,
        "smem_bytes": point.smem_dynamic_bytes,
        "blocks_per_sm": occupied.blocks_per_sm,
        "limited_by": occupied.limited_by,
    }


def timed(roots: Roots, entry: Entry, flop: float) -> Row:
    context, candidate = roots.candidate(entry)
    began = time.perf_counter()
    verdict = evaluate(candidate, context).verdict
    evidence = performance_of(verdict)
    row = {
        "verdict": verdict_name(verdict),
        "sentence": getattr(verdict, "sentence", "") or getattr(verdict, "message", ""),
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


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("out", type=Path, metavar="OUT.json")
    parser.add_argument("lists", type=Path, nargs="*", metavar="LIST", default=[LIST])
    options = parser.parse_args()
    require_gpu()
    selected = entries(options.lists)
    with tempfile.TemporaryDirectory(prefix="greenfast-long-") as folder:
        roots = Roots({entry.root for entry in selected}, Path(folder))
        try:
            measure(roots, selected, options.out)
        finally:
            roots.close()


def measure(roots: Roots, selected: list[Entry], out: Path) -> None:
    """Compile every entry on all cores, then time one after another."""
    environment, rows = target_environment(roots.toolchain, roots.target), []
    with ThreadPoolExecutor(usable_cores()) as pool:
        figures = list(pool.map(lambda entry: compiled_figures(roots, entry), selected))
    for entry, compiled in zip(selected, figures, strict=True):
        row = {"candidate": entry.text, **compiled}
        if "excluded" not in compiled:
            row |= timed(roots, entry, compiled["flop"])
        rows.append(row)
        write_json(out, {"environment": environment, "rows": rows})
        print(line(row), flush=True)


def line(row: Row) -> str:
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
    main()
