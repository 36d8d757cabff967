"""A stand-in for the GPU of an attention search: correct outputs, invented times, real delays.

The measuring child of a search on a machine without a GPU. Outputs are those of reference.py, once
for each set of inputs. A request lasts as long as such requests did on an H200. The settings are in
a file in the folder TMPDIR, so that they reach the child.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from greenfast.search.children import serve_requests
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES
from greenfast.search.oracle.reference_module import reference_module
from greenfast.search.targets.cuda.arena import problems_of
from greenfast.search.targets.cuda.spans import UNASKED

FILE = "standin_attention.json"
BASELINE_US = 32.0
FASTEST_US, SPREAD_US = 12.0, 25.0  # most candidates of a search are faster than its baseline
SLOW_SAMPLES, ALL_SAMPLES = 16, 80


def settings(folder: Path, execute_s: float, measure_s: float, compiled: Mapping[str, Any]) -> None:
    """Write the settings of the children that start with TMPDIR=`folder`.

    `compiled` has the workload's D, dtype and mask.
    """
    values: dict[str, Any] = {name: compiled[name] for name in ("D", "dtype", "mask")}
    values |= {"execute_s": execute_s, "measure_s": measure_s, "repeat_s": measure_s / 2}
    values["reference_s"] = 0.0
    (folder / FILE).write_text(json.dumps(values))


def time_us(cubin: Path) -> float:
    """The time of a cubin: its own, and always the same."""
    share = int(hashlib.sha256(cubin.read_bytes()).hexdigest()[:6], 16) / 16**6
    return FASTEST_US + SPREAD_US * share


class Gpu:
    """Answers the parent's requests as the real measuring child does."""

    def __init__(self) -> None:
        self._settings = json.loads((Path(os.environ["TMPDIR"]) / FILE).read_text())
        text = (REPOSITORY_TEMPLATES / "attention" / "reference.py").read_text()
        self._module = reference_module("attention", text)
        self._known: dict[str, bytes] = {}  # outputs by the file of the images
        self._replied_s: float | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "hello":
            return {"cupy": "none", "runtime": 0, "nvml": "1", "pid": os.getpid()}
        begin = time.monotonic()
        spans = {} if self._replied_s is None else {UNASKED: begin - self._replied_s}
        reply = getattr(self, f"_{request['do']}")(request)
        time.sleep(max(0.0, begin + self._settings[f"{request['do']}_s"] - time.monotonic()))
        self._replied_s = time.monotonic()
        return {**reply, "spans": spans}

    def _execute(self, request: dict[str, Any]) -> dict[str, Any]:
        problems = problems_of(request)
        self._write(request, problems)
        return {"damage": [None] * len(problems)}

    def _measure(self, request: dict[str, Any]) -> dict[str, Any]:
        self._write(request, [request["problem"]])
        cubin = Path(request["cubin"])
        other = "other_problem" in request
        own_us = BASELINE_US if not other else time_us(cubin)
        count = SLOW_SAMPLES if own_us > BASELINE_US else ALL_SAMPLES
        wobble = [1.0 + 0.0001 * (at % 7) for at in range(count)]
        return {
            "damage": [None],
            "samples": [own_us * each for each in wobble],
            "others": [BASELINE_US * each for each in reversed(wobble)] if other else [],
            "sets": 1,
            "nodes": 8,
            "other_nodes": 8 if other else 0,
            "health": {"sm_clock_mhz": 1980.0, "power_w": 300.0, "temperature_c": 40.0},
        }

    def _reference(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"unavailable": "there is no GPU"}

    def _repeat(self, request: dict[str, Any]) -> dict[str, Any]:
        self._write(request, [request["fresh"]])
        return {"damage": [None], "suspicion": "", "ratios": {}}

    def _write(self, request: Mapping[str, Any], problems: Sequence[Mapping[str, Any]]) -> None:
        with Path(request["outputs"]).open("wb") as file:
            for problem in problems:
                if (key := problem["images"]) not in self._known:
                    self._known[key] = self._outputs(problem)
                file.write(self._known[key])

    def _outputs(self, problem: Mapping[str, Any]) -> bytes:
        images, places, position = np.fromfile(problem["images"], np.uint8), {}, 0
        for tensor in problem["tensors"]:
            places[tensor["name"]] = images[position : position + tensor["bytes"]]
            position += tensor["bytes"]
        if not problem["launches"]:  # nothing to do
            return b"".join(places[name].tobytes() for name in ("o", "lse") if name in places)
        arguments = problem["launches"][0]["arguments"]
        # An absent output is a null pointer.
        numbers = [each["value"] for each in arguments if each.get("scalar", "uint64") != "uint64"]
        h, h_kv, s_q, s_kv, scale, *strides = numbers
        dims = {"H": h, "H_kv": h_kv, "S_q": s_q, "S_kv": s_kv, "D": self._settings["D"]}
        dims["scale"] = scale
        dims["B"] = -(-places["q"].size // (2 * strides[0]))
        views = {}
        for at, name in enumerate("qkvo"):
            sizes = (s_q if name in "qo" else s_kv, dims["D"])
            shape = (dims["B"], h if name in "qo" else h_kv, *sizes)
            views[name] = self._view(places[name], shape, strides[3 * at : 3 * at + 3])
        options = {"dtype": self._settings["dtype"], "mask": self._settings["mask"]}
        with np.errstate(all="ignore"):
            right = self._module.reference(dims, options, views)
            views["o"][...] = right["o"]["rounded"].astype(views["o"].dtype)
            lse = right["lse"]["value"].astype(np.float32)
        return places["o"].tobytes() + (lse.tobytes() if "lse" in places else b"")

    def _view(self, image: np.ndarray, shape: Sequence[int], strides: Sequence[int]) -> np.ndarray:
        storage = self._module.STORAGE[self._settings["dtype"]]
        if not image.size:
            return np.zeros(shape, storage)
        steps = tuple(step * storage.itemsize for step in (*strides, 1))
        return np.ndarray(shape, storage, buffer=image.data, strides=steps)


if __name__ == "__main__":
    serve_requests(Gpu().answer, int(sys.argv[1]), int(sys.argv[2]))
