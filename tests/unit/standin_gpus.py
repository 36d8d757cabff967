"""GPUs for machines without any: the driver's answers, and a child that computes axpy.

The GPU's number is the child's last argument. What each GPU does is in `standin_gpus.json` in the
folder TMPDIR, so that it reaches the children: `speed` (a factor on times), `sleep_s` of each
request, `dies_at` (it dies at that request and each later one), `starts` (false: no child starts),
`illegal_at` (a run of more problems than that has an illegal address at this one).
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from greenfast.search.targets.cuda.arena import problems_of

HERE = Path(__file__).parent
FILE = "standin_gpus.json"
A, B = 2.5, -0.75  # of the album's axpy
BLOCKS = 16


def install(patch: Any, folder: Path, gpus: Mapping[int, Mapping[str, Any]]) -> None:
    """Give this process the GPUs; `patch` is a pytest.MonkeyPatch, `folder` the new TMPDIR."""
    from greenfast.search.devices.facts import device
    from greenfast.search.targets import cuda
    from greenfast.search.targets.cuda import driver
    from greenfast.search.targets.cuda.target import CudaTarget

    folder.mkdir(exist_ok=True)
    (folder / FILE).write_text(json.dumps({str(number): dict(gpu) for number, gpu in gpus.items()}))
    patch.setenv("TMPDIR", str(folder))
    patch.setattr(tempfile, "tempdir", None)
    patch.setenv("PYTHONPATH", os.pathsep.join([str(HERE.parents[1]), str(HERE)]))
    models = {number: replace(device(gpu.get("model", "h200"))) for number, gpu in gpus.items()}
    for module in (driver, cuda):
        patch.setattr(module, "device_of", lambda number: models[number])
        patch.setattr(module, "gpu_count", lambda: len(gpus))
        patch.setattr(module, "start_code", lambda: 0, raising=False)
    patch.setattr(driver, "gpu_uuid", lambda number: f"{folder.name}-{number}")
    patch.setattr(driver, "driver_version", lambda: "13.0")
    patch.setattr(CudaTarget, "measurer", Path(__file__).stem)


def base_us(cubin: Path) -> float:
    """The time of a cubin on a GPU with speed 1: its own, and always the same."""
    return 10.0 + int(hashlib.sha256(cubin.read_bytes()).hexdigest()[:6], 16) % 9000 / 1000


class Gpu:
    """The child's side."""

    def __init__(self, number: int) -> None:
        folder = Path(os.environ["TMPDIR"])
        self.number = number
        self.gpu = json.loads((folder / FILE).read_text())[str(number)]
        self.count = folder / f"requests-{number}"  # of all children of the GPU
        if not self.gpu.get("starts", True):
            sys.exit("this GPU is out of order")

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "hello":
            return {"cupy": "none", "runtime": 0, "nvml": "1", "pid": os.getpid()}
        with self.count.open("a") as file:
            file.write(".")
        if self.count.stat().st_size >= self.gpu.get("dies_at", 10**9):
            os._exit(3)
        time.sleep(self.gpu.get("sleep_s", 0.0))
        problems = (
            problems_of(request)
            if request["do"] == "execute"
            else [request.get("fresh") or request["problem"]]
        )
        if len(problems) > (at := self.gpu.get("illegal_at", 10**9)):
            return {"error": "an illegal address", "code": 700, "at": at}
        with Path(request["outputs"]).open("wb") as file:
            for problem in problems:
                file.write(axpy(problem).tobytes())
        if request["do"] == "repeat":
            return {"damage": [None], "suspicion": "", "ratios": {}}
        speed = self.gpu.get("speed", 1.0)
        own_us = base_us(Path(request["cubin"])) * speed
        other = request.get("other_cubin", request["cubin"])
        others = [base_us(Path(other)) * speed] * BLOCKS
        wobble = [1.0 + 0.0001 * (at % 3) for at in range(BLOCKS)]
        return {
            "damage": [None] * len(problems),
            "samples": [own_us * each for each in wobble],
            "others": [us * each for us, each in zip(others, wobble, strict=True)]
            if "other_problem" in request
            else [],
            "sets": 1,
            "nodes": 100,
            "health": {},
        }


def axpy(problem: Mapping[str, Any]) -> np.ndarray:
    """The bytes that y = a * x + b leaves in the whole image of y, of fp16."""
    images, position = np.fromfile(problem["images"], np.uint8), 0
    places = {}
    for tensor in problem["tensors"]:
        places[tensor["name"]] = images[position : position + tensor["bytes"]]
        position += tensor["bytes"]
    x, y = places["x"].view(np.float16), places["y"].copy()
    count = next(
        argument["value"]
        for argument in problem["launches"][0]["arguments"]
        if argument.get("scalar") == "int32"
    )
    y.view(np.float16)[:count] = (x[:count].astype(np.float32) * np.float32(A) + B).astype(
        np.float16
    )
    return y


if __name__ == "__main__":
    from greenfast.search.children import serve_requests

    serve_requests(Gpu(int(sys.argv[3])).answer, int(sys.argv[1]), int(sys.argv[2]))
