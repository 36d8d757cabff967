"""The compiling child: NVRTC through cuda.core, one request at a time, without state."""

from __future__ import annotations

import base64
import ctypes
import io
import os
import sys
import time
import zlib
from collections.abc import Iterable
from functools import cache
from typing import Any

from greenfast.search.children import serve_requests

POLITE = 5  # all cores compile, and the child that times kernels must not wait for one of them


def compile_request(request: dict[str, Any]) -> dict[str, Any]:
    """Compile {"source", "name", "arch", "include", "libraries", "log_bytes"}.

    Returns {"cubin", "ptx", "log", "log_bytes", "compile_s"}. `cubin` (None after a refusal) and
    the deflated `ptx` are in base64.
    """
    load(tuple(request["libraries"]))
    from cuda.core import Program, ProgramOptions

    log = io.StringIO()
    options = ProgramOptions(
        arch=request["arch"],
        std="c++17",
        include_path=request["include"],
        ptxas_options=["-v"],
        name=request["name"],
    )
    started = time.perf_counter()
    cubin, ptx = None, b""
    try:
        program = Program(request["source"], "c++", options)
        cubin = bytes(program.compile("cubin", logs=log).code)
        ptx = ptx_of(program)
    except Exception as error:  # NVRTC's refusals are exceptions that contain the log
        text = str(error)
        log.write(text)
    text = log.getvalue().rstrip("\0\n ")
    return {
        "cubin": base64.b64encode(cubin).decode() if cubin else None,
        "ptx": base64.b64encode(zlib.compress(ptx, level=1)).decode(),
        "log": cap(text, request["log_bytes"]),
        "log_bytes": len(text),
        "compile_s": time.perf_counter() - started,
    }


@cache
def load(libraries: Iterable[str]) -> None:
    """Load NVRTC by path, before cuda.bindings loads it by name from LD_LIBRARY_PATH."""
    for path in libraries:
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)


def ptx_of(program: Any) -> bytes:
    """The program's PTX; empty when NVRTC gives none. Only the instruction mix needs it."""
    from cuda.bindings import nvrtc  # cuda.core gives PTX only where there is a driver

    status, size = nvrtc.nvrtcGetPTXSize(program.handle)
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        return b""
    text = bytearray(size)
    (status,) = nvrtc.nvrtcGetPTX(program.handle, text)
    return bytes(text).rstrip(b"\0") if status == nvrtc.nvrtcResult.NVRTC_SUCCESS else b""


def cap(text: str, limit: int) -> str:
    """`text`, without its middle where it is longer than `limit` characters."""
    if len(text) <= limit:
        return text
    half = limit // 2
    left_out = f"[... {len(text) - 2 * half} of {len(text)} characters left out ...]"
    return f"{text[:half]}\n{left_out}\n{text[-half:]}"


if __name__ == "__main__":
    os.nice(POLITE)
    serve_requests(compile_request, int(sys.argv[1]), int(sys.argv[2]))
