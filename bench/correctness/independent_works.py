"""Random candidates, and wrong twins of them, for the independent check."""

from __future__ import annotations

import argparse
import random
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace

from bench.correctness.mutation import DECLARATION, LARGER_ARRAY, NOT_CODE, OPERATORS
from bench.session import Session
from greenfast.search.gates.base import Subject
from greenfast.search.kernels.spec import KernelSpec, TemplateSpec
from greenfast.search.kernels.workloads import Items
from greenfast.search.render import RenderedSource
from greenfast.search.space.candidate import Candidate, Origin, OriginKind, complete_parameters
from greenfast.search.space.space import Space

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
MOST_DRAWS = 4000  # of a point, before a space counts as empty


@dataclass
class Work:
    """A candidate or a wrong twin; `gate` and `checker` hold why they reject it."""

    id: int
    candidate: Candidate
    compiled: Items
    source: RenderedSource
    planted: str = ""  # operator: line before -> after
    subject: Subject | None = None  # rendered and compiled; None: it does not compile
    gate: str | None = None  # "" if it accepts, None while unknown; so is checker
    checker: str | None = None
    ratio: float | None = None
    safety: str = ""  # why safety rejects a work that the gate accepts and the checker rejects


def outcome(work: Work) -> str:
    """The verdicts of gate, checker and safety together. A twin is wrong by intent."""
    if work.gate is None or work.checker is None:
        return "not compiled"
    if bool(work.gate) == bool(work.checker):
        return "both reject" if work.gate else "both accept"
    if work.checker:
        return "only safety rejects" if work.safety else "wrong accepted"
    return "only the gate rejects" if work.planted else "right rejected"


def drawn(
    kernel: KernelSpec, template: TemplateSpec, session: Session, options: argparse.Namespace
) -> Iterator[Work]:
    """Random valid points in random groups of options, then twins of the first ones."""
    rng, plain = random.Random(secrets.randbits(64)), []
    for number in range(options.count):
        plain.append(random_work(number, kernel, template, session, rng))
        yield plain[-1]
    for number in range(options.mutants):
        original = plain[number % len(plain)]
        if (twin := planted(original, rng)) is not None:
            yield replace(original, id=options.count + number, source=twin[0], planted=twin[1])


def random_work(
    number: int,
    kernel: KernelSpec,
    template: TemplateSpec,
    session: Session,
    rng: random.Random,
) -> Work:
    """A random valid point of the template, in a random group of options."""
    supported = dict(template.supports)
    for _ in range(MOST_DRAWS):
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
        if Space(template, compiled, session.target.device).why_not(parameters) is None:
            candidate = Candidate(
                kernel.name, template.name, parameters, Origin(OriginKind.SAMPLED)
            )
            source = session.context(kernel, compiled=compiled).render(candidate)
            if not isinstance(source, RenderedSource):
                raise SystemExit(f"{template.name} does not render: {source.message}")
            return Work(number, candidate, compiled, source)
    raise SystemExit(f"no valid point of {template.name} in {MOST_DRAWS} draws")


def planted(work: Work, rng: random.Random) -> tuple[RenderedSource, str] | None:
    """A twin with one line of the template changed, in both forms of the text, and the change."""
    lines = work.source.text.splitlines()
    places: dict[str, list[tuple[int, str]]] = {}
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
    occurrence = sum(
        lines[other] == lines[number] and work.source.lines[other].file.endswith(".cu.j2")
        for other in range(number)
    )
    unit, seen = work.source.unit.splitlines(), 0
    for at, line in enumerate(unit):
        if line == lines[number]:
            if seen == occurrence:
                unit[at] = changed
                break
            seen += 1
    text = [*lines[:number], changed, *lines[number + 1 :]]
    twin = replace(
        work.source,
        text="\n".join(text) + "\n",
        unit="\n".join(unit) + "\n",
        digest=f"{work.source.digest[:40]}-{secrets.token_hex(6)}",
    )
    return twin, f"{name}: {lines[number].strip()} -> {changed.strip()}"
