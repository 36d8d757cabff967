"""A second checker of kernels for Hopper: `judge_apart` judges a candidate's order once more.

It shares no code with the emulator's runtime and its checks. It has its own scheduler, mbarriers,
and copies and products that compute nothing, and full vector clocks instead of the checks'
shortcuts. Only the compiled kernel is the same: the library that the emulator's headers and g++
make from the text, with hooks at its loads and stores.

It judges the order of accesses to shared memory and to accumulators. It does not judge values,
global memory, or the registers of a block. Candidate code runs in a child without a sandbox.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.results import ROOT
from greenfast.search.devices.tensor_map import TensorMap
from greenfast.search.errors import Fault
from greenfast.search.oracle.problem import (
    GivenArgument,
    LaunchPlan,
    Packed,
    Problem,
    Scalar,
    Tensor,
    WorkspaceMemory,
)
from greenfast.search.render import RenderedSource
from greenfast.search.targets.emulator.build import EmulatorBuild, Module
from greenfast.search.targets.emulator.job import SCALAR_FORMATS

HERE = Path(__file__).parent
SOURCES = ("machine.cpp", "memory.cpp", "calls.cpp", "unsupported.cpp")
INCLUDE = ROOT / "search" / "targets" / "emulator" / "include"
LIBRARY = "libgf_runtime.so"  # the name by which kernel libraries ask for their runtime
CLUSTERS = 6  # of a launch, at most
CHILD_SECONDS = 240.0
COMPILE_SECONDS = 120.0


@dataclass(frozen=True)
class Conflict:
    kind: str  # as the emulator's findings, or 'crash', 'timeout', 'unsupported'
    text: str
    problem: str
    line: str = ""  # of the access, FILE:LINE
    other_line: str = ""  # of the other one

    @property
    def sentence(self) -> str:
        lines = f"{self.line} and {self.other_line}" if self.other_line else self.line
        return f"{self.kind} in {self.problem}: {self.text} ({lines})"


@dataclass(frozen=True)
class Judgement:
    conflicts: tuple[Conflict, ...]
    clusters: int  # that were run; 0 if a conflict ended the judgement

    @property
    def is_clean(self) -> bool:
        return not self.conflicts

    @property
    def is_judged(self) -> bool:
        return all(conflict.kind != "unsupported" for conflict in self.conflicts)


def judge_apart(
    source: RenderedSource,
    problems: Iterable[Problem],
    build: EmulatorBuild,
    *,
    seeds: Iterable[int] = (0,),
    clusters: int = CLUSTERS,
) -> Judgement:
    """The conflicts in a candidate's kernels for these problems, in other orders for each seed.

    `problems` come from `checked_problems(subject)` or elsewhere. It stops at the first problem
    with a conflict. Fault if the text does not compile.
    """
    module = build.build_module(
        source.unit, source.entries, flavour="counted", deadline_s=COMPILE_SECONDS
    )
    if not isinstance(module, Module):
        raise Fault(f"the second checker cannot compile: {module.log[:500]}", code="second_checker")
    declared = dict(module.clusters)
    job = {
        "runtime": str(runtime_library(build)),
        "module": str(module.path),
        "clusters": clusters,
        "problems": [_problem(problem, seed, declared) for seed in seeds for problem in problems],
    }
    with tempfile.TemporaryDirectory(prefix="second-") as folder:
        path = Path(folder) / "job.json"
        path.write_text(json.dumps(job), "utf-8")
        command = [sys.executable, "-m", f"{__name__}.child", str(path)]
        try:
            child = subprocess.run(
                command,
                check=False,
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=CHILD_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return Judgement((Conflict("timeout", "the kernel does not end", "any"),), 0)
    return _judgement(child, module.path)


def runtime_library(build: EmulatorBuild) -> Path:
    """The second runtime, compiled where the emulator's own is."""
    texts = b"".join(path.read_bytes() for path in sorted(HERE.iterdir()) if path.is_file())
    digest = hashlib.sha256(texts + (INCLUDE / "gf_emulator" / "abi.h").read_bytes()).hexdigest()
    folder = build.folder.parent / f"second-{digest[:16]}"
    if not (folder / LIBRARY).exists():
        folder.mkdir(parents=True, exist_ok=True)
        fresh = folder / f".{os.getpid()}.so"
        flags = ("-std=c++17", "-O2", "-g1", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread")
        subprocess.run(
            [
                build.compiler.path,
                *flags,
                f"-I{INCLUDE}",
                *(str(HERE / name) for name in SOURCES),
                f"-Wl,-soname,{LIBRARY}",
                "-o",
                str(fresh),
            ],
            check=True,
        )
        os.replace(fresh, folder / LIBRARY)
    return folder / LIBRARY


def _judgement(child: subprocess.CompletedProcess[str], module: Path) -> Judgement:
    rows = [json.loads(line) for line in child.stdout.splitlines() if line.startswith("{")]
    done = [row["done"] for row in rows if "done" in row]
    conflicts = tuple(
        Conflict(
            row["kind"],
            row["text"],
            row["problem"],
            _line(module, row["site"]),
            _line(module, row["other"]),
        )
        for row in rows
        if "kind" in row
    )
    if not done and not conflicts:
        why = f"the child ended with {child.returncode}: {child.stderr[-300:]}"
        conflicts = (Conflict("crash", why, "any"),)
    return Judgement(conflicts, sum(done))


def _line(module: Path, site: int) -> str:
    """The kernel's own line of a return address: the last that was inlined into no other."""
    if not site:
        return ""
    command = ["addr2line", "-i", "-e", str(module), hex(site - 1)]
    lines = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split("\n")
    own = [line.split(" ")[0] for line in lines if "/include/" not in line and ":" in line]
    return Path(own[0]).name if own else ""


def _problem(
    problem: Problem, seed: int, declared: dict[str, tuple[int, int, int]]
) -> dict[str, Any]:
    buffers = {tensor.name: tensor.image.nbytes for tensor in problem.tensors}
    buffers |= {workspace.name: workspace.bytes for workspace in problem.workspaces}
    return {
        "name": f"{problem.case.name} seed {seed}",
        "seed": seed,
        "buffers": buffers,
        "launches": [_launch(plan, problem, declared) for plan in problem.launches],
    }


def _launch(
    plan: LaunchPlan, problem: Problem, declared: dict[str, tuple[int, int, int]]
) -> dict[str, Any]:
    arguments = problem.arguments if plan.arguments is None else plan.arguments
    return {
        "entry": plan.entry,
        "grid": plan.grid,
        "block": plan.block,
        "cluster": declared.get(plan.entry, plan.cluster),
        "dynamic_bytes": plan.smem_dynamic_bytes,
        "arguments": [_argument(argument) for argument in arguments],
    }


def _argument(argument: GivenArgument) -> dict[str, Any]:
    match argument:
        case None:
            return {"kind": "null"}
        case Tensor() | WorkspaceMemory():
            return {"kind": "pointer", "buffer": argument.name}
        case Scalar():
            value = struct.pack(SCALAR_FORMATS[argument.dtype], argument.value)
            return {"kind": "scalar", "bytes": value.hex()}
        case TensorMap():
            return {
                "kind": "map",
                "buffer": argument.buffer,
                "box": argument.box,
                "element_bytes": argument.element_bytes,
            }
        case Packed():
            raise Fault("the second checker takes no packed arguments", code="second_checker")
