"""What a kernel says of its probes, and a template of those that it has; read from TOML.

A *probe* is a template rendered once more so that it also writes the result of one of its stages, which is compared
with a reference of that stage. Probes stand in the order of the stages.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from greenfast.search.errors import SpecError
from greenfast.search.kernels.expressions import Expression, expression, require_names
from greenfast.search.kernels.tables import Table

Named = tuple[tuple[str, Expression], ...]


@dataclass(frozen=True)
class ProbeSpec:
    """One stage of a kernel. Expressions are over dims, options, constants, tiles and `values`."""

    name: str
    doc: str
    bound: str  # of the error, in words
    suspect: str  # where to look when this stage is the first that is wrong
    reference: str  # a function of the kernel's reference.py
    of: str  # the kernel's output that is compared; "": one of the probe's own, float32
    shape: tuple[Expression, ...]  # of the probe's own output
    axes: tuple[str, ...]  # names, for the report
    tiles: Named  # axes that are tiled: how many elements a tile
    values: Named  # names that a template may define otherwise
    labels: tuple[tuple[str, tuple[str, ...]], ...]  # names of an axis's positions

    @property
    def writes(self) -> bool:
        """Whether the entries take one more argument, `float* probe_out`."""
        return not self.of


@dataclass(frozen=True)
class TemplateProbe:
    """A probe that a template has, for the parameters for which `when` holds."""

    name: str
    when: Expression | None
    values: Named


def read_probes(table: Table, known: Set[str]) -> tuple[ProbeSpec, ...]:
    """[probes.NAME] of a kernel.toml; `known` are the names of its dims, options, constants and tiles."""
    return tuple(_probe(name, one, known) for name, one in table.named("probes"))


def _probe(name: str, table: Table, known: Set[str]) -> ProbeSpec:
    of = table.get("of", str, "")
    axes = table.strings("axes")
    found = ProbeSpec(
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
    if bool(of) == bool(found.shape):
        raise SpecError(
            f"{table.where}: a shape, or `of` with the name of an output", code="bad_spec"
        )
    strange = {key for key, _ in (*found.tiles, *found.labels)} - set(axes)
    for one in (*(size for _, size in (*found.tiles, *found.values)), *found.shape):
        require_names(one, known | {key for key, _ in found.values})
    if strange:
        raise SpecError(
            f"{table.where}: {min(strange)!r} is none of the axes",
            code="bad_spec",
            mend=", ".join(axes),
        )
    return found


def _named(table: Table) -> Named:
    return tuple((key, expression(text, f"{table.where} {key}")) for key, text in table.items())


def read_template_probes(
    table: Table, known: Set[str], run_known: Set[str]
) -> tuple[tuple[TemplateProbe, ...], Expression | None]:
    """[probes] of a template: the probes that it has, and `warp_rows`, the rows of a tile that one warp owns."""
    warp_rows = table.expression("warp_rows", None)
    if warp_rows is not None:
        require_names(warp_rows, known)
    found = []
    for name, data in table.items():
        if name == "warp_rows":
            continue
        one = Table(data, f"{table.where} {name}")
        when = one.expression("when", None)
        if when is not None:
            require_names(when, known)
        values = tuple((key, value) for key, value in _named(one) if key != "when")
        for _, value in values:
            require_names(value, run_known)
        found.append(TemplateProbe(name, when, values))
    return tuple(found), warp_rows


def check_template_probes(
    where: str, having: tuple[TemplateProbe, ...], probes: tuple[ProbeSpec, ...]
) -> None:
    """SpecError for a probe, or a value of one, that the kernel does not know."""
    known = {probe.name: probe for probe in probes}
    for one in having:
        if one.name not in known:
            raise SpecError(
                f"{where}, [probes]: unknown probe {one.name!r}",
                code="unknown_probe",
                mend="known: " + ", ".join(known),
            )
        names = [name for name, _ in known[one.name].values]
        for name, _ in one.values:
            if name not in names:
                raise SpecError(
                    f"{where}, [probes] {one.name}: unknown value {name!r}",
                    code="unknown_name",
                    mend="known: " + ", ".join(names),
                )
