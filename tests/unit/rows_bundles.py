"""Bundles of the kernel of rows_kernel.py, and inputs for it in every layout."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np

from greenfast.app.bundle.launch_data import alignments, launch_texts
from greenfast.search.devices.facts import device
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.render import render
from greenfast.search.space.candidate import complete_parameters
from greenfast.search.space.space import resolve
from tests.unit.rows_kernel import write_rows

COMPILED = (("C", 128), ("dtype", "fp16"))
PLAIN_TEXT = """extern "C" __global__ void
rows_plain(const unsigned short* x, unsigned short* y, int R, long long x_batch_stride,
           long long x_row_stride)
{
    y[(static_cast<long long>(blockIdx.y) * R + blockIdx.x) * {{ C }} + threadIdx.x] =
        x[blockIdx.y * x_batch_stride + blockIdx.x * x_row_stride + threadIdx.x];
}
"""


def rows_bundles(folder: Path) -> dict[str, dict[str, bytes]]:
    """The template that copies by tensor maps, and the plain one; strides may be any."""

    def change(file: str, text: str) -> str:
        if file == "plain.cu.j2":
            return PLAIN_TEXT
        return text.replace("stride_elements = 8", "stride_elements = 1")

    catalogue = write_rows(folder, change, boxes=True)
    return {name: bundle_files(catalogue, name) for name in ("boxes", "plain")}


def bundle_files(catalogue: Catalogue, name: str) -> dict[str, bytes]:
    """What a candidate bundle of one of the templates of `rows` holds for a call."""
    kernel = catalogue.kernel("rows")
    template, h200 = kernel.template(name), device("h200")
    point = resolve(template, complete_parameters(template, {}, COMPILED), COMPILED, h200)
    source = render(kernel, template, point, (REPOSITORY_TEMPLATES / "include",))
    launch = {
        "schema": 1,
        "template": name,
        "parameters": {},
        "source_digest": hashlib.sha256(source.text.encode()).hexdigest(),
        "arch": "sm_90a" if template.arch_specific else "sm_90",
        "sm_count": h200.multiprocessors,
        **launch_texts(template, point.values),
        "alignment": alignments(kernel, template, point.values, dict(COMPILED)),
        "workloads": [{"name": "small", "dims": {"C": 128}, "options": {"dtype": "fp16"}}],
    }
    return {
        "launch.json": json.dumps(launch).encode(),
        "kernel.cu": source.text.encode(),
        "kernel.toml": (kernel.folder / "kernel.toml").read_bytes(),
        "reference.py": (kernel.folder / "reference.py").read_bytes(),
        "template.toml": (kernel.folder / f"{name}.toml").read_bytes(),
        "template.cu.j2": (kernel.folder / f"{name}.cu.j2").read_bytes(),
    }


def layouts_of_x() -> dict[str, np.ndarray]:
    wide = np.random.default_rng(0).normal(size=(2, 5, 136)).astype(np.float16)
    memory = np.random.default_rng(1).normal(size=2000).astype(np.float16)
    return {
        "even": wide[..., :128],
        "an odd address": wide[..., 1:129],
        "odd rows": wide.reshape(-1)[: 2 * 5 * 129].reshape(2, 5, 129)[..., :128],
        "columns first": wide.reshape(2, 136, 5)[:, :128].transpose(0, 2, 1),
        "from the last row": wide[:, ::-1, :128],
        "from the last column": wide[..., 127::-1],
        "every other column": memory[:1280].reshape(1, 5, 256)[..., ::2],
        "expanded": np.broadcast_to(memory[:640].reshape(1, 5, 128), (2, 5, 128)),
        "expanded odd rows": np.broadcast_to(
            memory[: 5 * 129].reshape(1, 5, 129)[..., :128], (2, 5, 128)
        ),
    }
