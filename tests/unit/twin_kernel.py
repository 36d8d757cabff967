"""axpy with a parameter of which the compiler makes nothing: its values have one machine code."""

from __future__ import annotations

import shutil
from pathlib import Path

from greenfast.search.kernels.catalogue import Catalogue

KERNELS = Path(__file__).parents[1] / "kernels"
SPARES = (1, 2, 3)
PARAMETER = f"""[parameters.spare]
type = "int"
values = {list(SPARES)}
default = 1
doc = "nothing"

"""


def twin_catalogue(folder: Path, shown: str = "constexpr int spare = {{ spare }};") -> Catalogue:
    """A catalogue with template `right`, whose text shows the parameter `spare` as `shown`."""
    shutil.copytree(
        KERNELS / "axpy", folder / "axpy", ignore=shutil.ignore_patterns("broken*", "__*")
    )
    template, text = folder / "axpy" / "right.toml", folder / "axpy" / "right.cu.j2"
    before, mark, after = template.read_text().partition("[[constraints]]")
    template.write_text(before + PARAMETER + mark + after)
    text.write_text(text.read_text().replace('extern "C"', f'{shown}\n\nextern "C"', 1))
    return Catalogue([folder])
