"""The compiling child: NVRTC through its bindings, one request at a time, without state.

A source can name any file, so the child loads NVRTC first, and then confines itself to the folders
of CUDA's headers and libraries for the rest of its life.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import re
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from greenfast.search.children import serve_requests
from greenfast.search.confinement import confine
from greenfast.search.toolchain.machine_code import machine_code_digest

POLITE = 5  # all cores compile, and the child that times kernels must not wait for one of them
LARGEST_RESULT_BYTES = 16 * 2**20  # of a cubin, and of its PTX
OUT_OF_MEMORY = "the compiling process is out of memory"
TOO_LARGE = "the compiled kernel takes"
# The reason would tell whether a file exists that the child may not read.
_REASON = re.compile(r'(cannot open source file "[^"\n]*"):[^\n]*')


def compile_request(include: Sequence[str], request: dict[str, Any]) -> dict[str, Any]:
    """Compile {"source", "name", "arch", "log_bytes"} with headers of the folders `include`.

    Returns {"cubin", "machine_code", "ptx", "log", "log_bytes", "compile_s"}. `cubin` (None after a
    refusal) and the deflated `ptx` are in base64; `machine_code` is a digest (machine_code.py).
    """
    from cuda.bindings import nvrtc

    options = (
        f"-arch={request['arch']}",
        "--ptxas-options=-v",
        *(f"--include-path={folder}" for folder in include),
        "--std=c++17",
    )
    words = [option.encode() for option in options]
    started = time.perf_counter()
    cubin, ptx, log = None, b"", ""
    try:
        source, name = request["source"].encode(), request["name"].encode()
        program = _answer(nvrtc.nvrtcCreateProgram(source, name, 0, None, None))
        (status,) = nvrtc.nvrtcCompileProgram(program, len(words), words)
        bytes_of_log = bytearray(_answer(nvrtc.nvrtcGetProgramLogSize(program)))
        _answer(nvrtc.nvrtcGetProgramLog(program, bytes_of_log))
        # NVRTC ends each of its stages' messages with NUL, also in the middle.
        log = bytes_of_log.replace(b"\0", b"").decode(errors="backslashreplace")
        if status == nvrtc.nvrtcResult.NVRTC_SUCCESS:
            image = bytearray(_answer(nvrtc.nvrtcGetCUBINSize(program)))
            _answer(nvrtc.nvrtcGetCUBIN(program, image))
            cubin, ptx = bytes(image), ptx_of(program)
        else:
            log = f"{int(status)}: {status.name}, compilation log:\n\n{log}"
        nvrtc.nvrtcDestroyProgram(program)
    except MemoryError:
        log += f"\n{OUT_OF_MEMORY}"
    except Exception as error:
        log += str(error)
    text = _REASON.sub(r"\1", log.rstrip("\n "))
    if (size := max(len(cubin or b""), len(ptx))) > LARGEST_RESULT_BYTES:
        text = f"{TOO_LARGE} {size} bytes; it may take {LARGEST_RESULT_BYTES}"
        cubin, ptx = None, b""
    return {
        "cubin": base64.b64encode(cubin).decode() if cubin else None,
        "machine_code": machine_code_digest(cubin, ptx) if cubin else "",
        "ptx": base64.b64encode(zlib.compress(ptx, level=1)).decode(),
        "log": cap(text, request["log_bytes"]),
        "log_bytes": len(text),
        "compile_s": time.perf_counter() - started,
    }


def confined_compiler(
    libraries: Sequence[str], include: Sequence[str]
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Load everything that compiling needs; from then on only `include` can be read."""
    # By path, before cuda.bindings loads NVRTC by name from LD_LIBRARY_PATH.
    for path in libraries:
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    import cuda.bindings.nvrtc

    cuda.bindings.nvrtc.nvrtcVersion()  # it finds NVRTC's functions at the first call

    confine((*include, *{str(Path(path).parent) for path in libraries}))
    return partial(compile_request, include)


def _answer(result: tuple[Any, ...]) -> Any:
    """The result of a call of NVRTC, apart from its status."""
    status, *answers = result
    if status.value != 0:
        raise RuntimeError(f"{status.value}: {status.name}")
    return answers[0] if answers else None


def ptx_of(program: Any) -> bytes:
    """The program's PTX; empty when NVRTC gives none. Only the instruction mix needs it."""
    from cuda.bindings import nvrtc

    status, size = nvrtc.nvrtcGetPTXSize(program)
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        return b""
    text = bytearray(size)
    (status,) = nvrtc.nvrtcGetPTX(program, text)
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
    compiler = confined_compiler(json.loads(sys.argv[3]), json.loads(sys.argv[4]))
    serve_requests(compiler, int(sys.argv[1]), int(sys.argv[2]))
