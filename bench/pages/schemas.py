"""The JSON Schemas that editors use for kernel.toml and template files.

    python -m bench.pages.schemas [--save]

tests/unit/test_schemas.py compares the files with what the loader reads.
"""

from __future__ import annotations

import json
from pathlib import Path

from bench.pages.sections import run_page
from bench.results import ROOT
from greenfast.search.kernels.forms import TABLES, file_schema

FOLDER = ROOT / "search" / "kernels" / "schemas"


def pages() -> dict[Path, str]:
    """Each schema's file with its text."""
    return {
        FOLDER / f"{kind}.schema.json": json.dumps(file_schema(kind), indent=1) + "\n"
        for kind in TABLES
    }


if __name__ == "__main__":
    run_page(__doc__, pages)
