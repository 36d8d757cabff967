"""`--help` of a command shows its options; it imports none of the libraries that the command uses.

SQLAlchemy, NumPy and the like take longer to import than everything else that help needs together.
A command's module therefore imports them, and the rooms that use them, in its functions.
"""

from __future__ import annotations

import json
import subprocess
import sys

LIBRARIES = ("sqlalchemy", "numpy", "optuna", "fastapi", "jinja2", "plotly", "uvicorn", "httpx")
EVERY_HELP = f"""
import contextlib, io, json, sys
from greenfast.app.cli.commands import SECTIONS
from greenfast.app.cli.main import run

imported = {{}}
for section in SECTIONS.values():
    for command in section:
        with contextlib.redirect_stdout(io.StringIO()):
            assert run([command.name, "--help"]) == 0, command
        new = sorted(name for name in {LIBRARIES} if sys.modules.pop(name, None))
        if new:
            imported[command.name] = new
print(json.dumps(imported))
"""


def test_no_help_imports_a_library_of_the_service() -> None:
    done = subprocess.run(
        [sys.executable, "-c", EVERY_HELP], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {}, "imports of a command's module that belong in a function"
