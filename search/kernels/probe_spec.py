"""The probes of a kernel, and which of them a template has; read from TOML.

A *probe* is a template rendered once more, so that it also writes the result of one of its stages.
That result is compared with a reference of the stage. Probes are in the order of the stages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

from greenfast.search.errors import SpecError
from greenfast.search.kernels.expressions import Expression, expression, require_names
from greenfast.search.kernels.tables import Table, unreserved

Named = tuple[tuple[str, Expression], ...]


@dataclass(frozen=True)
class ProbeSpec:
    """One stage of a kernel. Expressions are over dims, options, constants, tiles and `values`."""

    name: str
    doc: str
    bound: str  # of the error, in words
    suspect: str  # where to look when this is the first wrong stage
    reference: str  # a function of the kernel's reference.py
    of: str  # the kernel's output that is compared; "": the probe's own output, float32
    shape: tuple[Expression, ...]  # of the probe's own output
    axes: tuple[str, ...]  # names, for the report
    tiles: Named  # elements a tile, for each tiled axis
    values: Named  # defaults of names that a template may redefine
    labels: tuple[tuple[str, tuple[str, ...]], ...]  # by axis: names of its positions

    @property
    def writes(self) -> bool:
        """Whether the entries take an additional argument, `float* probe_out`."""
        return not self.of


@dataclass(frozen=True)
class TemplateProbe:
    """A probe that a template has for parameters for which `when` holds."""

    name: str
    when: Expression | None
    values: Named


def read_probes(table: Table, known: Set[str], outputs: Sequence[str]) -> tuple[ProbeSpec, ...]:
    """[probes.NAME] of a kernel.toml.

    `known` are the names of its dims, options, constants and tiles.
    """
    return tuple(_probe(name, entry, known, outputs) for name, entry in table.named("probes"))


def probe_mistakes(
    kernel: str, probes: Sequence[ProbeSpec], reference_text: str
) -> Iterator[SpecError]:
    """Probes whose function reference.py does not name."""
    for probe in probes:
        if not re.search(rf"\b{re.escape(probe.reference)}\b", reference_text):
            yield SpecError(
                f"{kernel}/kernel.toml, [probes.{probe.name}], reference: reference.py has no "
                f"function {probe.reference!r}",
                code="bad_spec",
            )


def _probe(name: str, table: Table, known: Set[str], outputs: Sequence[str]) -> ProbeSpec:
    of = table.get("of", str, "")
    if of and of not in outputs:
        raise SpecError(
            f"{table.where}, of: {of!r} is not an output",
            code="bad_spec",
            mend="known: " + ", ".join(outputs),
        )
    axes = table.strings("axes")
    probe = ProbeSpec(
        name,
        table.get("doc", str),
        table.get("bound", str),
        table.get("suspect", str, ""),
        table.get("reference", str),
        of,
        tuple(expression(text, f"{table.where}, shape") for text in table.get("shape", list, [])),
        axes,
        _named(table.table("tiles")),
        _named(table.table("values")),
        tuple((key, tuple(texts)) for key, texts in table.table("labels").items()),
    )
    table.finish()
    if bool(of) == bool(probe.shape):
        raise SpecError(
            f"{table.where}: give either a shape, or `of` with the name of an output",
            code="bad_spec",
        )
    for size in (*(size for _, size in (*probe.tiles, *probe.values)), *probe.shape):
        require_names(size, known | {key for key, _ in probe.values})
    unknown = {key for key, _ in (*probe.tiles, *probe.labels)} - set(axes)
    if unknown:
        raise SpecError(
            f"{table.where}: {min(unknown)!r} is none of the axes",
            code="bad_spec",
            mend="known: " + ", ".join(axes),
        )
    return probe


def _named(table: Table) -> Named:
    return tuple(
        (unreserved(key, table.where), expression(text, f"{table.where} {key}"))
        for key, text in table.items()
    )


def read_template_probes(
    table: Table, known: Set[str], run_known: Set[str]
) -> tuple[tuple[TemplateProbe, ...], Expression | None]:
    """[probes] of a template: its probes, and `warp_rows`, the rows of a tile that a warp owns."""
    warp_rows = table.optional_expression("warp_rows")
    if warp_rows is not None:
        require_names(warp_rows, known)
    probes = []
    for name, data in table.items():
        if name == "warp_rows":
            continue
        entry = Table(data, f"{table.where} {name}")
        when = entry.optional_expression("when")
        if when is not None:
            require_names(when, known)
        values = tuple((key, value) for key, value in _named(entry) if key != "when")
        for _, value in values:
            require_names(value, run_known)
        probes.append(TemplateProbe(name, when, values))
    return tuple(probes), warp_rows


def check_template_probes(
    where: str, template_probes: tuple[TemplateProbe, ...], probes: tuple[ProbeSpec, ...]
) -> None:
    """SpecError for a probe, or a probe's value, that the kernel does not define."""
    known = {probe.name: probe for probe in probes}
    for probe in template_probes:
        if probe.name not in known:
            raise SpecError(
                f"{where}, [probes]: unknown probe {probe.name!r}",
                code="unknown_probe",
                mend="known: " + ", ".join(known),
            )
        names = [name for name, _ in known[probe.name].values]
        for name, _ in probe.values:
            if name not in names:
                raise SpecError(
                    f"{where}, [probes] {probe.name}: unknown value {name!r}",
                    code="unknown_name",
                    mend="known: " + ", ".join(names),
                )
