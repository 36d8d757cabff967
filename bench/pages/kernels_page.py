"""The rendered kernels of docs/kernels/: readable CUDA without a search.

    python -m bench.pages.kernels_page [--save]

tests/unit/test_docs.py compares the files with today's rendering byte for byte.
"""

from __future__ import annotations

from pathlib import Path

from bench.pages.sections import DOCS, run_page
from greenfast.search.devices.facts import device
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.render import RenderedSource, render
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.space.space import resolve

FOLDER = DOCS / "kernels"
KERNEL, WORKLOAD = "attention", "mission"
PRESETS = ("scalar:minimal", "wmma:stage2", "mma:fa2")


def file_of(preset: str) -> Path:
    """The file in docs/kernels/ that holds the source of `preset`."""
    return FOLDER / f"{KERNEL}_{preset.replace(':', '_')}.cu"


def source_of(preset: str) -> RenderedSource:
    """The source that `greenfast trial attention --workload mission` compiles for `preset`."""
    catalogue = Catalogue.from_environment()
    kernel = catalogue.kernel(KERNEL)
    template, point = kernel.preset(preset)
    compiled = kernel.workload(WORKLOAD).compile_time(kernel)
    candidate = preset_candidate(template, point.name, compiled)
    values = resolve(template, candidate.parameters, compiled, device("h200"))
    source = render(kernel, template, values, catalogue.include_dirs)
    if not isinstance(source, RenderedSource):
        raise SystemExit(f"{preset} cannot be rendered: {source.message}")
    return source


def pages() -> dict[Path, str]:
    """Every generated file with the text that it should hold."""
    return {file_of(preset): source_of(preset).text for preset in PRESETS}


if __name__ == "__main__":
    run_page(__doc__, pages)
