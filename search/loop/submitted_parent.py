"""A candidate as a writer needs it: a text to change, and a launch file to submit it with.

The text names the `gf/` headers instead of containing them, so that it is short and runs wherever
candidates run. Its template's parameters become constants of the launch file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from greenfast.search.devices.facts import Device
from greenfast.search.errors import UsageError
from greenfast.search.kernels.author_files import parsed_toml, read_author_file
from greenfast.search.kernels.spec import KernelSpec, TemplateSpec
from greenfast.search.kernels.workloads import Items
from greenfast.search.loop.submitted import PARAMETER
from greenfast.search.loop.submitted_launch import KEYS, toml_of
from greenfast.search.render import RenderFailed, render
from greenfast.search.space.candidate import Candidate
from greenfast.search.space.space import resolve


@dataclass(frozen=True)
class Writable:
    """A source and its launch file, ready to be changed and submitted."""

    source: str
    launch: str


def writable(
    kernel: KernelSpec,
    candidate: Candidate,
    compiled: Items,
    device: Device,
    include_dirs: tuple[Path, ...],
) -> Writable:
    """The candidate's text and launches; UsageError for a template that does not render."""
    template = kernel.template(candidate.template)
    point = resolve(template, candidate.parameters, compiled, device)
    source = render(kernel, template, point, include_dirs)
    if isinstance(source, RenderFailed):
        raise UsageError(source.message, code="no_source")
    lines = [line for line in source.unit.splitlines() if not line.startswith("#line ")]
    return Writable("\n".join(lines) + "\n", _launch_file(template, candidate))


def _launch_file(template: TemplateSpec, candidate: Candidate) -> str:
    path = template.path.parent / f"{template.name}.toml"
    tables = parsed_toml(read_author_file(path, path.name), path.name)
    kept = {key: value for key, value in tables.items() if key in KEYS}
    parameters = {name: repr(value) for name, value in candidate.parameters if name != PARAMETER}
    if parameters or "locals" in kept:
        kept["locals"] = {**parameters, **kept.get("locals", {})}
    when = template.deterministic_when
    if when is not None and not when(dict(candidate.parameters)):
        kept["deterministic"] = False
    return toml_of(kept)
