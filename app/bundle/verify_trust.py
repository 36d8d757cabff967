"""The files of a bundle that verification runs, or that decide how it is judged.

Its reference.py and its template are code. kernel.toml and template.toml choose the sizes on which
it is checked and the arguments that are compared: with tiles of 1 and a workload of 64 elements, a
launch of a single block is correct. A bundle does not choose how it is judged, so these files must
be known here as well, or trusted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from greenfast.app.bundle.opened import OpenedBundle
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.kernels.identity import launching_digest, semantics_digest
from greenfast.search.kernels.spec import KernelSpec


def foreign_files(
    catalogue: Catalogue, bundle: OpenedBundle, stated: KernelSpec, *, rendered: bool
) -> str:
    """How files of the bundle that differ from the catalogue's would be used.

    `stated` is the kernel of the bundle's files. Empty if none differs.
    """
    own = _own(catalogue, stated.name)
    template = str(bundle.launch["template"])
    run, ours = sorted(bundle.reference_files), dict(own.reference_files) if own else {}
    if rendered:
        run.append("template.cu.j2")
        texts = {known.name: known.text for known in (own.templates if own else ())}
        if template in texts:
            ours["template.cu.j2"] = texts[template]
    run = [name for name in run if bundle.files[name] != ours.get(name, "").encode()]
    followed = _followed(own, stated, template) if own else []
    done = [
        f"{verb} {' and '.join(names)}"
        for verb, names in (("run", run), ("go by", followed))
        if names
    ]
    return " and ".join(done)


def _followed(own: KernelSpec, stated: KernelSpec, template: str) -> list[str]:
    """Files that decide how the bundle is judged, and say something else than ours."""
    known = next((other for other in own.templates if other.name == template), None)
    names = [] if _same_operation(own, stated) else ["kernel.toml"]
    if known is None or launching_digest(known) != launching_digest(stated.template(template)):
        names.append("template.toml")
    return names


def _same_operation(own: KernelSpec, stated: KernelSpec) -> bool:
    """Whether dims, options, arguments and work are ours. References are compared by themselves."""
    same_reference = replace(
        stated, reference_text=own.reference_text, reference_uses=own.reference_uses
    )
    return semantics_digest(same_reference) == semantics_digest(own)


def judged_kernel(catalogues: Sequence[Catalogue], stated: KernelSpec) -> KernelSpec:
    """The kernel by which a bundle is judged: ours, with the bundle's template.

    That of the first catalogue that knows the operation. One that none knows was trusted, and gets
    at least the checks that its reference has here.
    """
    owns = [own for catalogue in catalogues if (own := _own(catalogue, stated.name)) is not None]
    owns = [own for own in owns if own.reference_files == stated.reference_files]
    for own in owns:
        if _same_operation(own, stated):
            names = {workload.name for workload in own.workloads}
            others = (workload for workload in stated.workloads if workload.name not in names)
            return replace(
                own,
                workloads=(*own.workloads, *others),
                templates=stated.templates,
                baseline=stated.baseline,
                folder=stated.folder,
            )
    return replace(stated, checks=owns[0].checks) if owns else stated


def _own(catalogue: Catalogue, name: str) -> KernelSpec | None:
    return catalogue.kernel(name) if name in catalogue.names() else None
