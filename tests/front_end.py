"""NVRTC's front end alone: whether it takes a text, for a tenth of what the machine code costs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

from greenfast.search.render import RenderedSource
from greenfast.search.toolchain import Toolchain

# Runs in a process of its own, so that NVRTC never belongs to the tests' process.
PROGRAM = """
import ctypes, json, sys
libraries, texts, options = json.load(sys.stdin)
for path in libraries:
    ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
from cuda.bindings import nvrtc
words = [option.encode() for option in options]
for text in texts:
    _, program = nvrtc.nvrtcCreateProgram(text.encode(), b"kernel.cu", 0, None, None)
    (status,) = nvrtc.nvrtcCompileProgram(program, len(words), words)
    log = bytearray(nvrtc.nvrtcGetProgramLogSize(program)[1])
    nvrtc.nvrtcGetProgramLog(program, log)
    print(json.dumps("" if int(status) == 0 else log.decode(errors="replace")))
"""


def refusals(toolchain: Toolchain, sources: Sequence[RenderedSource], arch: str) -> list[str]:
    """NVRTC's messages for the sources that its front end refuses."""
    options = [
        f"-arch={arch}",
        "--std=c++17",
        "--fdevice-syntax-only",
        *(f"--include-path={folder}" for folder in toolchain.include_dirs),
    ]
    texts = [source.text for source in sources]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps((list(map(str, toolchain.toolkit.libraries)), texts, options)),
        capture_output=True,
        text=True,
        check=True,
    )
    logs = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(logs) == len(sources)
    return [log for log in logs if log]
