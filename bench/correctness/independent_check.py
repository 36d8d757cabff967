"""Random candidates and wrong twins of them, judged by the gate and by a checker that was written apart from it.

    python -m bench.correctness.independent_check FOLDER [--kernels ...] [--templates ...] [--count 300] [--mutants 60] [--target cuda:0]

Writes FOLDER/KERNEL.json. Two questions: did the gate accept what is wrong, did it reject what is right? The checker
(bench/correctness/independent/) has its own reference, bounds, lengths, data, memory layout and launches, and draws its seeds when it
runs. So that its yes means something it is given wrong twins, too: a line of the text changed by one of a dozen
operators. The gate is correctness on the target; what it lets pass and the checker does not is judged by safety on the emulator,
as any contender is, and is a wrong one accepted when that passes it, too. Where gate and checker let a twin pass it is equivalent,
or right by luck on this GPU; one that only the gate rejects is wrong as intended, and says that the checker's data are weaker
there. Exits 1 on a disagreement.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import queue
import random
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[2]

import numpy as np

from bench.correctness.independent import CHECKERS
from bench.correctness.mutants import DECLARATION, LARGER_ARRAY, NOT_CODE, OPERATORS
from greenfast.search.cores import usable_cores
from greenfast.search.gates import GateLimits
from greenfast.search.gates.correctness import CorrectnessGate
from greenfast.search.gates.safety import SafetyGate
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.loop.evaluate import EvaluationContext
from greenfast.search.oracle.cases import Case
from greenfast.search.oracle.problem import (
    LaunchPlan,
    Problem,
    Scalar,
    Tensor,
    WorkspaceMemory,
    launches,
)
from greenfast.search.render import RenderedSource
from greenfast.search.space.candidate import Candidate, Origin, OriginKind, complete_parameters
from greenfast.search.space.space import Space, resolve
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.toolchain import Cubin, Toolchain
from greenfast.search.verdict import Outcome

PLANTED = (
    "drop a mask",
    "drop half of a mask",
    "drop a choice",
    "one more turn",
    "index plus one",
    "drop a reduction",
    "swap minimum and maximum",
    "swap integer minimum and maximum",
    "drop a rescale",
    "assign instead of add",
    "one lane further",
    "remove __syncthreads",
    "remove async_copy_wait",
)
CHILDREN, STUCK_S = 8, 8.0
SAFETY_DEADLINE_S = 60.0
SEEDS = 2  # draws of all cases a candidate
RARE = 4000  # draws of a point, before a space counts as empty


@dataclass
class Work:
    """One candidate, or a wrong twin; `gate` and `checker`: "" when they found it right, None while unknown."""

    id: int
    candidate: Candidate
    compiled: tuple
    source: RenderedSource
    planted: str = ""  # operator: line before -> after
    cubin: Cubin | None = None
    gate: str | None = None
    checker: str | None = None
    ratio: float | None = None
    safety: str = ""  # why safety rejects what the gate lets pass and the checker does not


def main() -> int:
    options = _arguments()
    catalogue, disagreements = Catalogue([REPOSITORY_TEMPLATES]), 0
    known = {
        template.name for name in options.kernels for template in catalogue.kernel(name).templates
    }
    if unknown := set(options.templates or ()) - known:
        raise SystemExit(
            f"unknown template {', '.join(sorted(unknown))} (known: {', '.join(sorted(known))})"
        )
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="greenfast-independent-") as folder:
        toolchain = Toolchain(Path(folder), usable_cores())
        target = open_target(
            options.target, TargetSettings(Path(folder), catalogue.include_dirs, 1, 3.0)
        )
        target.prepare()
        try:
            for name in options.kernels:
                disagreements += check(
                    catalogue.kernel(name), catalogue, toolchain, target, Path(folder), options
                )
        finally:
            target.close()
            toolchain.close()
    return 1 if disagreements else 0


def check(kernel, catalogue, toolchain, target, folder: Path, options) -> int:
    """One kernel's templates; how many disagreements there were."""
    rows, found, began = [], {}, time.monotonic()
    for template in kernel.templates:
        if options.templates and template.name not in options.templates:
            continue
        begin = time.monotonic()
        works = list(drawn(kernel, template, catalogue, target.device, options))
        judge_all(works, kernel, catalogue, toolchain, target, folder)
        mine = [row(work, template.name) for work in works]
        rows += mine
        print(
            json.dumps(told(mine, f"{kernel.name}/{template.name}", time.monotonic() - begin)),
            flush=True,
        )
        for one in mine:
            if one["outcome"] in ("wrong accepted", "right rejected"):
                print(json.dumps(one), flush=True)
        identity = {**dict(toolchain.identity), **dict(target.identity())}
        found = save(
            rows, identity, time.monotonic() - began, options.folder / f"{kernel.name}.json"
        )
    return sum(one["wrong accepted"] + one["right rejected"] for one in found.values())


def save(
    rows: list[dict[str, Any]], identity: dict[str, str], seconds: float, out: Path
) -> dict[str, dict[str, Any]]:
    """What was found so far, by template."""
    templates = dict.fromkeys(one["template"] for one in rows)
    found = {
        name: told([one for one in rows if one["template"] == name], name, None)
        for name in templates
    }
    environment = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "cores": usable_cores(),
        "python": platform.python_version(),
        **identity,
    }
    out.write_text(
        json.dumps(
            {"environment": environment, "seconds": round(seconds, 1), "found": found, "rows": rows}
        )
        + "\n"
    )
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kernels", nargs="+", choices=tuple(CHECKERS), default=tuple(CHECKERS))
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--mutants", type=int, default=60)
    parser.add_argument("--templates", nargs="+", help="of those kernels, only these")
    parser.add_argument("--target", default="cuda:0")
    return parser.parse_args()


# ---- candidates ----


def drawn(kernel, template, catalogue, device, options) -> Iterator[Work]:
    """Valid points over all that the template supports, then twins of the first ones."""
    rng, plain = random.Random(secrets.randbits(64)), []
    for number in range(options.count):
        plain.append(_made(number, kernel, template, catalogue, device, rng))
        yield plain[-1]
    for number in range(options.mutants):
        of = plain[number % len(plain)]
        if (twin := planted(of, rng)) is not None:
            yield replace(of, id=options.count + number, source=twin[0], planted=twin[1])


def _made(number: int, kernel, template, catalogue, device, rng: random.Random) -> Work:
    supported = dict(template.supports)
    for _ in range(RARE):
        values = {
            dim.name: rng.choice(supported.get(dim.name, dim.values))
            for dim in kernel.dims
            if dim.time == "compile"
        }
        values |= {
            option.name: rng.choice(supported.get(option.name, option.values))
            for option in kernel.options
        }
        compiled = tuple(values.items())
        given = {parameter.name: rng.choice(parameter.values) for parameter in template.parameters}
        parameters = complete_parameters(template, given, compiled)
        if Space(template, compiled, device).why_not(parameters) is None:
            candidate = Candidate(
                kernel.name, template.name, parameters, Origin(OriginKind.SAMPLED)
            )
            source = _context(kernel, compiled, catalogue, None, None).render(candidate)
            if not isinstance(source, RenderedSource):
                raise SystemExit(f"{template.name} does not render: {source.message}")
            return Work(number, candidate, compiled, source)
    raise SystemExit(f"no valid point of {template.name} in {RARE} draws")


def _context(kernel, compiled, catalogue, target, toolchain, seed: int = 0) -> EvaluationContext:
    return EvaluationContext(
        kernel,
        compiled,
        (),
        target,
        toolchain,
        catalogue.include_dirs,
        GateLimits(max_spill_bytes=None),
        seed,
    )


def planted(work: Work, rng: random.Random) -> tuple[RenderedSource, str] | None:
    """A twin with one line of the template changed, in both forms of the text."""
    lines, places = work.source.text.splitlines(), {}
    for number, line in enumerate(lines):
        code = line.partition("//")[0]
        if (
            not work.source.lines[number].file.endswith(".cu.j2")
            or NOT_CODE.match(line)
            or LARGER_ARRAY.match(code)
        ):
            continue
        if DECLARATION.match(line) and "= " not in line:
            continue
        for name in PLANTED:
            for changed in OPERATORS[name](code):
                places.setdefault(name, []).append((number, changed))
    if not places:
        return None
    name = rng.choice(sorted(places))
    number, changed = rng.choice(places[name])
    said = f"{name}: {lines[number].strip()} -> {changed.strip()}"
    occurrence = sum(
        lines[one] == lines[number] and work.source.lines[one].file.endswith(".cu.j2")
        for one in range(number)
    )
    unit, seen = work.source.unit.splitlines(), 0
    for at, line in enumerate(unit):
        if line == lines[number]:
            if seen == occurrence:
                unit[at] = changed
                break
            seen += 1
    text = [*lines[:number], changed, *lines[number + 1 :]]
    return replace(
        work.source,
        text="\n".join(text) + "\n",
        unit="\n".join(unit) + "\n",
        digest=f"{work.source.digest[:40]}-{secrets.token_hex(6)}",
    ), said


# ---- judging ----


def judge_all(works: list[Work], kernel, catalogue, toolchain, target, folder: Path) -> None:
    """The gate says what it says, on all cores; then the checker, which is told nothing of it."""

    def gate(work: Work) -> None:
        work.cubin = _compiled(work, toolchain, target)
        if work.cubin is None:
            return
        context = _context(
            kernel, work.compiled, catalogue, target, toolchain, secrets.randbits(31)
        )
        subject = context.subject(work.candidate, work.source, work.cubin)
        result = CorrectnessGate().judge(subject)
        work.gate = "" if result.outcome is Outcome.PASSED else result.sentence

    with ThreadPoolExecutor(usable_cores()) as pool:
        list(pool.map(gate, works))
        compiled = [one for one in works if one.cubin is not None]
        if target.measures:
            on_gpu(compiled, kernel, folder)
        else:
            list(pool.map(lambda one: on_emulator(one, kernel, target), compiled))
        doubtful = [one for one in compiled if one.gate == "" and one.checker]
        if doubtful:
            list(pool.map(safety_of(kernel, catalogue, toolchain, folder), doubtful))


def safety_of(kernel, catalogue, toolchain, folder: Path) -> Callable[[Work], None]:
    """Judges a work by the safety gate of an emulator of the GPU."""
    emulator = open_target(
        "emulator:h200", TargetSettings(folder, catalogue.include_dirs, 1, SAFETY_DEADLINE_S)
    )
    emulator.prepare()

    def judge(work: Work) -> None:
        context = _context(
            kernel, work.compiled, catalogue, emulator, toolchain, secrets.randbits(31)
        )
        result = SafetyGate().judge(context.subject(work.candidate, work.source, work.cubin))
        work.safety = "" if result.outcome is Outcome.PASSED else result.sentence

    return judge


def _compiled(work: Work, toolchain, target) -> Cubin | None:
    found = toolchain.compile(work.source, target.device.arch)
    return found if isinstance(found, Cubin) else None


def cases_of(work: Work, kernel, offsets: bool) -> list[dict[str, Any]]:
    """Drawn cases with their launches: where a candidate is launched is the one thing that its template has to say."""
    template, compiled, checker = (
        kernel.template(work.candidate.template),
        dict(work.compiled),
        CHECKERS[kernel.name],
    )
    point = resolve(template, work.candidate.parameters, work.compiled)
    found, rng = [], np.random.default_rng(secrets.randbits(64))
    for _ in range(SEEDS):
        for case in checker.draw_cases(rng, dict(point.tiles), compiled, offsets):
            dims, chosen = (
                {one.name: case[one.name] for one in ones} for ones in (kernel.dims, kernel.options)
            )
            values = {**kernel.values_of(dims, chosen), **point.values}
            case["launches"] = [
                {
                    "entry": launch.entry,
                    "grid": launch.grid,
                    "block": launch.block,
                    "smem": launch.smem_dynamic_bytes,
                    "cluster": launch.cluster,
                }
                for launch in launches(template, values)
            ]
            case["workspaces"] = [
                (int(one.bytes(values)), one.zero_fill) for one in template.scratch(values)
            ]
            found.append(case)
    return found


def on_gpu(works: list[Work], kernel, folder: Path) -> None:
    """Several children, each with what is left of its share after what broke the one before it."""

    def child(number: int) -> None:
        share = works[number::CHILDREN]
        while share:
            jobs = folder / f"jobs-{number}.jsonl"
            jobs.write_text("".join(json.dumps(_job(one, kernel, folder)) + "\n" for one in share))
            share = _heard(share, jobs)

    with ThreadPoolExecutor(CHILDREN) as pool:
        list(pool.map(child, range(CHILDREN)))


def _job(work: Work, kernel, folder: Path) -> dict[str, Any]:
    path = folder / f"{kernel.name}-{work.candidate.template}-{work.id}.cubin"
    path.write_bytes(work.cubin.code)
    return {
        "id": work.id,
        "kernel": kernel.name,
        "cubin": str(path),
        "cases": cases_of(work, kernel, offsets=True),
    }


def _heard(share: list[Work], jobs: Path) -> list[Work]:
    """What a child said of its share; what is left after a candidate that broke it or never ended."""
    by_id, begun, lines = {one.id: one for one in share}, None, queue.SimpleQueue()
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "bench" / "independent" / "runner.py"), str(jobs)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )

    def read() -> None:
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    errors: list[str] = []
    threading.Thread(target=lambda: errors.extend(process.stderr), daemon=True).start()
    how = ""
    while True:
        try:
            line = lines.get(timeout=STUCK_S + (40.0 if begun is None else 0.0))
        except queue.Empty:
            how = f"it did not end within {STUCK_S:g} s"
            break
        if line is None:
            break
        said = json.loads(line)
        if "begin" in said:
            begun = by_id[said["begin"]]
        else:
            begun.checker, begun.ratio, begun = said["why"], said["ratio"], None
    process.kill()
    code = process.wait()
    if begun is None and (how or code != 0):
        raise RuntimeError(
            f"a child ended with exit code {code} before it began: {how}{''.join(errors)[-1000:]}"
        )
    if begun is not None:
        begun.checker = how or f"it broke the context: {(errors or [''])[-1].strip()[-200:]}"
    return [one for one in share if one.checker is None]


def on_emulator(work: Work, kernel, target) -> None:
    """The same cases on the emulator: the layout is the checker's, the memory the target's."""
    program, checker = target.load(work.source, work.cubin), CHECKERS[kernel.name]
    for case in cases_of(work, kernel, offsets=False):
        before = checker.images(case)
        (execution,) = target.execute(program, [_problem(checker, case, before)])
        if execution.failure is not None:
            work.checker = execution.failure.sentence
            return
        after = {
            name: execution.outputs.get(name, image.view(np.uint8)).view(image.dtype)
            for name, image in before.items()
        }
        work.checker, ratio = checker.judged(case, before, after)
        work.ratio = max(work.ratio or 0.0, ratio)
        if work.checker:
            return


def _problem(checker, case: dict[str, Any], before: dict[str, np.ndarray]) -> Problem:
    tensors = {
        name: Tensor(
            name,
            "output" if name in checker.OUTPUTS else "input",
            before[name].dtype,
            tuple(place["shape"]),
            tuple(place["strides"]),
            before[name].view(np.uint8),
            name in checker.OUTPUTS,
        )
        for name, place in case["tensors"].items()
    }
    arguments = [
        tensors[value] if type_ == "tensor" else Scalar(type_, value)
        for type_, value in checker.arguments(case)
    ]
    scratch = tuple(
        WorkspaceMemory(f"workspace_{number}", size, zero)
        for number, (size, zero) in enumerate(case["workspaces"])
    )
    own = Case("independent", (), (), "", "contiguous", case["seed"], ())
    plans = tuple(
        LaunchPlan(
            launch["entry"],
            launch["grid"],
            launch["block"],
            launch["smem"],
            cluster=launch["cluster"],
        )
        for launch in case["launches"]
    )
    return Problem(own, tuple(tensors.values()), scratch, (*arguments, *scratch), plans, 0.0, 0.0)


# ---- what came of it ----


def outcome(work: Work) -> str:
    if work.gate is None or work.checker is None:
        return "not compiled"
    if bool(work.gate) == bool(work.checker):
        return "both reject" if work.gate else "both accept"
    if work.checker:
        return "only safety rejects" if work.safety else "wrong accepted"
    return (
        "only the gate rejects" if work.planted else "right rejected"
    )  # a twin is wrong by intent


def row(work: Work, template: str) -> dict[str, Any]:
    return {
        "template": template,
        "compiled": dict(work.compiled),
        "parameters": work.candidate.values(),
        "source": work.source.digest[:16],
        "planted": work.planted,
        "outcome": outcome(work),
        "gate": work.gate,
        "safety": work.safety,
        "checker": work.checker,
        "ratio": work.ratio,
    }


def told(rows: list[dict[str, Any]], template: str, seconds: float | None) -> dict[str, Any]:
    plain, twins = (
        [one for one in rows if bool(one["planted"]) == which] for which in (False, True)
    )
    counts = Counter(one["outcome"] for one in rows)
    by_kind = {
        name: dict(
            Counter(twin["outcome"] for twin in twins if twin["planted"].startswith(name + ":"))
        )
        for name in PLANTED
    }
    ratios = sorted(one["ratio"] for one in plain if one["ratio"])
    return {
        "template": template,
        "candidates": dict(Counter(one["outcome"] for one in plain)),
        "twins": dict(Counter(twin["outcome"] for twin in twins)),
        "wrong accepted": counts["wrong accepted"],
        "right rejected": counts["right rejected"],
        "planted": {name: one for name, one in by_kind.items() if one},
        "largest_rms_ratio": ratios[-1] if ratios else None,
        **({"seconds": round(seconds, 1)} if seconds else {}),
    }


if __name__ == "__main__":
    raise SystemExit(main())
