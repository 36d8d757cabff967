"""Three rendered kernels in docs/kernels/, so that readable CUDA can be read without a search.

`python -m bench.pages.kernels_page --save` writes them; tests/unit/test_docs.py compares them with
today's rendering byte for byte.
"""

from __future__ import annotations

import sys
from pathlib import Path

from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.render import RenderedSource, render
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.space.space import resolve

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "kernels"
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
    values = resolve(template, candidate.parameters, compiled)
    source = render(kernel, template, candidate, values, catalogue.include_dirs)
    if not isinstance(source, RenderedSource):
        raise SystemExit(f"{preset} cannot be rendered: {source.message}")
    return source


def files() -> dict[Path, str]:
    """Every generated file with the text that it should hold."""
    return {file_of(preset): source_of(preset).text for preset in PRESETS}


if __name__ == "__main__":
    for path, text in files().items():
        if "--save" in sys.argv:
            path.write_text(text)
        else:
            print(f"{path.name}: {'current' if path.read_text() == text else 'out of date'}")
