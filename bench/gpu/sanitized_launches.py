"""The child of bench.gpu.sanitizers: launches kernels one after the other, under a tool.

    python -m bench.gpu.sanitized_launches REQUEST.json

Needs CuPy. Each buffer is an allocation of its own, so that an access beyond its end is outside of
every allocation. Prints a line when a kernel begins and one when it ends. It ends itself after an
error of the device, which breaks its context.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

DEADLINE_S = 15.0


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.gpu.sanitized_launches", description=__doc__
    )
    parser.add_argument("request", type=Path, metavar="REQUEST.json")
    jobs = json.loads(parser.parse_args().request.read_text())
    try:
        import cupy
    except ImportError as error:
        raise SystemExit(f"This child needs a GPU and CuPy: {error}") from error
    cupy.cuda.set_allocator(None)
    for job in jobs:
        print(json.dumps({"begin": job["name"]}), flush=True)
        error = launched(cupy, job)
        print(json.dumps({"end": job["name"], "error": error}), flush=True)
        if error:
            os._exit(3)


def launched(cupy: Any, job: dict[str, Any]) -> str:
    """The error of the first launch that fails; empty if all end."""
    from greenfast.search.targets.cuda.launches import Hung, Loaded, wait

    stream = cupy.cuda.get_current_stream()
    try:
        module = cupy.RawModule(path=job["cubin"])
        for described in job["problems"]:
            buffers = on_device(cupy, described)
            addresses = {name: array.data.ptr for name, array in buffers.items()}
            Loaded(module, described, addresses, []).launch(stream)
            wait(stream, DEADLINE_S)
    except Hung as hung:
        return str(hung)
    except Exception as error:  # CuPy's errors have several bases
        return f"{type(error).__name__}: {error}"[:200]
    return ""


def on_device(cupy: Any, described: dict[str, Any]) -> dict[str, Any]:
    """Inputs as they are; outputs and workspaces that start as poison stay unwritten."""
    images, position, buffers = np.fromfile(described["images"], np.uint8), 0, {}
    for tensor in described["tensors"]:
        size = tensor["bytes"]
        buffers[tensor["name"]] = cupy.empty(max(size, 1), cupy.uint8)
        if tensor["role"] != "output":
            buffers[tensor["name"]][:size].set(images[position : position + size])
        position += size
    for workspace in described["workspaces"]:
        make = cupy.zeros if workspace["zero"] else cupy.empty
        buffers[workspace["name"]] = make(max(workspace["bytes"], 1), cupy.uint8)
    return buffers


if __name__ == "__main__":
    main()
