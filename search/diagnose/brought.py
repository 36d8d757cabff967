"""A user's kernel for `greenfast check`: its .cu file with local includes, and its launch file."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from greenfast.search.devices.clusters import declared_clusters
from greenfast.search.diagnose.launch_file import ExpectedOutput, launched_in, read_launch_file
from greenfast.search.diagnose.restricted_parameters import (
    parameters_in,
    with_read_only_parameters,
)
from greenfast.search.errors import SpecError
from greenfast.search.kernels.plain_file import read_plain_file
from greenfast.search.kernels.template_text import Line
from greenfast.search.oracle.problem import Problem
from greenfast.search.render import RenderedSource, assemble
from greenfast.search.rendering import LARGEST_SOURCE_CHARACTERS

LARGEST_FILE_BYTES = 32 * 2**20
_LOCAL_INCLUDE = re.compile(r'\s*#\s*include\s+"([^"]+)"\s*$')


@dataclass(frozen=True, eq=False)
class BroughtKernel:
    """A user's kernel, ready for a target; `files` maps names in reports to paths."""

    source: RenderedSource
    problem: Problem
    expected: tuple[ExpectedOutput, ...]
    files: dict[str, Path]


def read_brought(
    cuda_file: Path, launch_file: Path, include_dirs: tuple[Path, ...], seed: int
) -> BroughtKernel:
    """Read both files; SpecError that names the file, the fault and the correct form."""
    launch = read_launch_file(launch_file, seed)
    problem = launch.problem
    files: dict[str, Path] = {}
    body = _lines_with_includes(cuda_file, files)
    entries = [launch.entry for launch in problem.launches]
    for entry in entries:
        if not any(re.search(rf"\b{entry}\s*\(", text) for text, _ in body):
            raise SpecError(
                f"{launch_file.name}: the entry {entry!r} is not in {cuda_file.name}",
                code="unknown_entry",
                mend="an entry is the name of a __global__ function",
            )
    source = assemble(body, entries, include_dirs, arch_specific=launch.arch_specific)
    problem = with_declared_clusters(problem, source, launch_file.name)
    problem = with_read_only_parameters(problem, parameters_in(source.text, entries))
    return BroughtKernel(source, problem, launch.expected, files)


def with_declared_clusters(problem: Problem, source: RenderedSource, where: str) -> Problem:
    """Launch in the declared clusters; SpecError if the launch file contradicts the text."""
    declared, launches = dict(declared_clusters(source.text, source.entries)), []
    for launch in problem.launches:
        cluster = declared.get(launch.entry, launch.cluster)
        launches.append(launched_in(cluster, launch, launch.entry, where))
    return replace(problem, launches=tuple(launches))


def shown_name(path: Path) -> str:
    """A file's name in reports: relative to the working directory if inside it, else its name."""
    try:
        name = path.resolve().relative_to(Path.cwd()).as_posix()
    except ValueError:
        name = path.name
    return re.sub(r'["\\\s]', "_", name)  # it is written into #line markers


def _is_beside(name: str) -> bool:
    """Whether an include may name a file beside the user's; others are left to the compiler."""
    return not name.startswith(("gf/", "/")) and ".." not in name.split("/")


def _lines_with_includes(path: Path, files: dict[str, Path]) -> list[tuple[str, Line]]:
    """The file's lines, with each local `#include "..."` replaced once by that file's lines."""
    shown = shown_name(path)
    try:
        text = read_plain_file(path, LARGEST_FILE_BYTES).decode("utf-8")
    except FileNotFoundError as error:
        raise SpecError(f"{path} does not exist", code="missing_file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{path} cannot be read as text", code="unreadable") from error
    if len(text) > LARGEST_SOURCE_CHARACTERS:
        raise SpecError(
            f"{shown} is longer than {LARGEST_SOURCE_CHARACTERS} characters", code="bad_spec"
        )
    files[shown] = path
    body: list[tuple[str, Line]] = []
    for number, line in enumerate(text.splitlines(), 1):
        include = _LOCAL_INCLUDE.match(line)
        beside = (
            path.parent / include.group(1) if include and _is_beside(include.group(1)) else None
        )
        if beside is None or not beside.is_file():
            body.append((line, Line(shown, number)))
        elif beside.resolve() not in {file.resolve() for file in files.values()}:
            body += _lines_with_includes(beside, files)
    return [line for line in body if "#pragma once" not in line[0]]
