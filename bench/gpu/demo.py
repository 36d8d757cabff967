"""The demo on a GPU: what a user sees, and which template wins.

    python -m bench.gpu.demo OUT.json [--seconds 60]

Runs scripts/demo.py, which starts a service, submits its search for a GPU, follows it and
downloads the winner. Stored are its lines, the winner's template and parameters from the downloaded
bundle, and the wall time. The demo is stopped after --seconds.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

from bench.command_line import require_gpu, script_parser
from bench.environment import environment
from bench.results import ROOT, Row, write_json

END_S = 25.0  # for the service to stop its children


def main() -> int:
    parser = script_parser(__doc__)
    parser.add_argument("out", type=Path, metavar="OUT.json")
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    require_gpu()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="greenfast-demo-") as folder:
        lines, code = shown(Path(folder), options.seconds)
        row: Row = {
            "what": "demo",
            "exit_code": code,
            "wall_s": round(time.monotonic() - began, 1),
            "winner": winner(Path(folder) / "demo-output" / "bundle.zip"),
            "lines": lines,
        }
    write_json(options.out, {"environment": {**environment(), **gpu()}, "rows": [row]})
    print(json.dumps(row["winner"]))
    return code


def shown(folder: Path, seconds: float) -> tuple[list[str], int]:
    """The demo's lines and its exit code; its files and the service's data are in `folder`."""
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "scripts" / "demo.py")],
        cwd=folder,
        env={**os.environ, "GREENFAST_DATA": str(folder / "data"), "COLUMNS": "160"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=END_S)
    print(output, end="", flush=True)
    return output.splitlines(), process.returncode


def winner(bundle: Path) -> Row | None:
    """The template, parameters and times in the downloaded bundle; None if there is none."""
    if not bundle.is_file():
        return None
    with zipfile.ZipFile(bundle) as opened:
        launch = json.loads(opened.read("launch.json"))
        source = opened.read("kernel.cu").decode()
    return {
        **{name: launch[name] for name in ("kernel", "template", "parameters") if name in launch},
        "uses_wgmma": "wgmma.mma_async" in source,
        "source_lines": source.count("\n"),
    }


def gpu() -> Row:
    if shutil.which("nvidia-smi") is None:
        return {}
    asked = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader", "-i", "0"]
    told = subprocess.run(asked, capture_output=True, check=False, text=True).stdout
    name, _, driver = told.partition(",")
    return {"gpu": name.strip(), "driver": driver.strip()}


if __name__ == "__main__":
    raise SystemExit(main())
