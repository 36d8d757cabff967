"""Candidates judged by the gate and by the independent checker, on a GPU or on the emulator."""

from __future__ import annotations

import json
import queue
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np

from bench.correctness.independent import CHECKERS
from bench.correctness.independent_works import Work
from bench.results import ROOT, Row
from bench.session import Session
from greenfast.search.cores import usable_cores
from greenfast.search.devices.facts import Device
from greenfast.search.gates.correctness import CorrectnessGate
from greenfast.search.gates.safety import SafetyGate
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.loop.evaluate import prepare
from greenfast.search.oracle.cases import Case
from greenfast.search.oracle.problem import (
    LaunchPlan,
    Problem,
    Scalar,
    Tensor,
    WorkspaceMemory,
    launches,
)
from greenfast.search.oracle.tensor_maps import tensor_maps
from greenfast.search.space.space import resolve
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.targets.base import Target
from greenfast.search.verdict import Outcome, Rejected

CHILDREN, STUCK_S, START_S = 8, 8.0, 40.0
SAFETY_DEADLINE_S = 60.0
SEEDS = 2  # draws of all cases of a candidate


def judge_all(works: list[Work], kernel: KernelSpec, session: Session) -> None:
    """Judge all works by the gate, then by the checker, which does not know the verdicts."""
    target = session.target

    def gate(work: Work) -> None:
        context = session.context(kernel, compiled=work.compiled, seed=secrets.randbits(31))
        subject = prepare(work.candidate, context, work.source)
        if isinstance(subject, Rejected):
            return
        work.subject = subject
        result = CorrectnessGate().judge(subject)
        work.gate = "" if result.outcome is Outcome.PASSED else result.sentence

    with ThreadPoolExecutor(usable_cores()) as pool:
        list(pool.map(gate, works))
        compiled = [work for work in works if work.subject is not None]
        if target.measures:
            on_gpu(compiled, kernel, target.device, session.folder)
        else:
            list(pool.map(lambda work: on_emulator(work, kernel, target), compiled))
        doubtful = [work for work in compiled if work.gate == "" and work.checker]
        if doubtful:
            list(pool.map(safety_of(kernel, session), doubtful))


def safety_of(kernel: KernelSpec, session: Session) -> Callable[[Work], None]:
    """A function that judges a work by the safety gate on an emulator of the GPU."""
    settings = TargetSettings(session.folder, session.catalogue.include_dirs, 1, SAFETY_DEADLINE_S)
    emulator = open_target("emulator:h200", settings)
    emulator.prepare()

    def judge(work: Work) -> None:
        context = replace(
            session.context(kernel, compiled=work.compiled, seed=secrets.randbits(31)),
            target=emulator,
        )
        result = SafetyGate().judge(
            context.subject(work.candidate, work.source, work.subject.cubin)
        )
        work.safety = "" if result.outcome is Outcome.PASSED else result.sentence

    return judge


def cases_of(work: Work, kernel: KernelSpec, device: Device, *, offsets: bool) -> list[Row]:
    """Drawn cases with their launches, the only thing that the candidate's template decides."""
    template, checker = kernel.template(work.candidate.template), CHECKERS[kernel.name]
    compiled = dict(work.compiled)
    point = resolve(template, work.candidate.parameters, work.compiled, device)
    cases, rng = [], np.random.default_rng(secrets.randbits(64))
    for _ in range(SEEDS):
        for case in checker.draw_cases(rng, dict(point.tiles), compiled, offsets):
            dims = {dim.name: case[dim.name] for dim in kernel.dims}
            options = {option.name: case[option.name] for option in kernel.options}
            values = {**kernel.values_of(dims, options), **point.values}
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
            case["scalars"] = [
                (scalar.dtype, scalar.value(values)) for scalar in template.own_scalars(values)
            ]
            case["workspaces"] = [
                (int(workspace.bytes(values)), workspace.zero_fill)
                for workspace in template.scratch(values)
            ]
            case["tensor_maps"] = tensor_maps(template, values, *_places(kernel, checker, case))
            cases.append(case)
    return cases


def _places(
    kernel: KernelSpec, checker: ModuleType, case: Row
) -> tuple[dict[str, tuple[int, ...]], dict[str, int | float]]:
    """Each tensor's strides and each scalar argument, of which tensor maps are made."""
    strides = {name: tuple(place["strides"]) for name, place in case["tensors"].items()}
    given = zip(kernel.arguments, checker.arguments(case), strict=True)
    return strides, {
        argument.name: value for argument, (type_, value) in given if type_ != "tensor"
    }


def on_gpu(works: list[Work], kernel: KernelSpec, device: Device, folder: Path) -> None:
    """Judge in several children. After a work that breaks its child, another takes the rest."""

    def child(number: int) -> None:
        share = works[number::CHILDREN]
        while share:
            jobs = folder / f"jobs-{number}.jsonl"
            jobs.write_text(
                "".join(json.dumps(_job(work, kernel, device, folder)) + "\n" for work in share)
            )
            share = _run_child(share, jobs)

    with ThreadPoolExecutor(CHILDREN) as pool:
        list(pool.map(child, range(CHILDREN)))


def _job(work: Work, kernel: KernelSpec, device: Device, folder: Path) -> Row:
    path = folder / f"{kernel.name}-{work.candidate.template}-{work.id}.cubin"
    path.write_bytes(work.subject.machine_code.code)
    return {
        "id": work.id,
        "kernel": kernel.name,
        "cubin": str(path),
        "cases": cases_of(work, kernel, device, offsets=True),
    }


def _run_child(share: list[Work], jobs: Path) -> list[Work]:
    """Let a child judge its share; the works that are left after one that broke or stopped it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.correctness.independent.runner", str(jobs)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    errors: list[str] = []

    def read() -> None:
        for line in process.stdout or ():
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    threading.Thread(target=lambda: errors.extend(process.stderr or ()), daemon=True).start()
    begun, stuck = _take_verdicts({work.id: work for work in share}, lines)
    process.kill()
    code = process.wait()
    if begun is None and (stuck or code != 0):
        raise RuntimeError(
            f"a child ended with exit code {code} before it began: {stuck}{''.join(errors)[-1000:]}"
        )
    if begun is not None:
        begun.checker = stuck or f"it broke the context: {(errors or [''])[-1].strip()[-200:]}"
    return [work for work in share if work.checker is None]


def _take_verdicts(
    by_id: dict[int, Work], lines: queue.SimpleQueue[str | None]
) -> tuple[Work | None, str]:
    """Store verdicts as they come; the work that was begun but not judged, and why it is stuck."""
    begun = None
    while True:
        try:
            line = lines.get(timeout=STUCK_S + (START_S if begun is None else 0.0))
        except queue.Empty:
            return begun, f"it did not end within {STUCK_S:g} s"
        if line is None:
            return begun, ""
        message = json.loads(line)
        if "begin" in message:
            begun = by_id[message["begin"]]
        else:
            begun.checker, begun.ratio, begun = message["why"], message["ratio"], None


def on_emulator(work: Work, kernel: KernelSpec, target: Target) -> None:
    """The same cases on the emulator, in the checker's layout and the target's memory."""
    program, checker = work.subject.program, CHECKERS[kernel.name]
    for case in cases_of(work, kernel, target.device, offsets=False):
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


def _problem(checker: ModuleType, case: Row, before: dict[str, np.ndarray]) -> Problem:
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
        for type_, value in (*checker.arguments(case), *case["scalars"])
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
    given = (*arguments, *scratch, *case["tensor_maps"])
    return Problem(own, tuple(tensors.values()), scratch, given, plans, 0.0, 0.0)
