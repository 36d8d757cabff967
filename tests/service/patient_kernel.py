"""A kernel whose trials take a second of time and little of the processor.

Tests that stop a search in its middle need trials that last. `patient` is the album's axpy with a
reference that sleeps, and with tiles that differ between most candidates, because a reference is
computed once a tile.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from service_home import KERNELS, Home

PAUSE_S = 0.12  # of each of the six cases that a tile brings
NAME = "patient"
PLAN = {"kernel": NAME, "templates": ["right"], "strategy": "random", "seed": 3}
COMMAND = ("search", NAME, "--template", "right", "--strategy", "random", "--seed", "3")
CHANGES = {
    "kernel.toml": [('name = "axpy"', f'name = "{NAME}"')],
    "right.toml": [
        ('kernel = "axpy"', f'kernel = "{NAME}"'),
        ("values = [32, 64, 128, 256]", f"values = {list(range(32, 513, 32))}"),
    ],
    "reference.py": [
        ("import ml_dtypes\n", "import time\n\nimport ml_dtypes\n"),
        ("    value = A *", f"    time.sleep({PAUSE_S})\n    value = A *"),
    ],
}


def add_patient_kernel(home: Home) -> None:
    """Give the home the kernel `patient` beside the album's."""
    templates = home.data / "patient_templates"
    folder = templates / NAME
    shutil.copytree(KERNELS / "axpy", folder, ignore=shutil.ignore_patterns("broken*", "__*"))
    for file, replacements in CHANGES.items():
        _replace(folder / file, replacements)
    path = os.pathsep.join((home.environment["GREENFAST_TEMPLATE_PATH"], str(templates)))
    home.environment["GREENFAST_TEMPLATE_PATH"] = path


def _replace(path: Path, replacements: list[tuple[str, str]]) -> None:
    text = path.read_text()
    for old, new in replacements:
        assert old in text, f"{old!r} is not in {path.name}"
        text = text.replace(old, new)
    path.write_text(text)
