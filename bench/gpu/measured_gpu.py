"""The GPU models that the shipped sets are measured on, and the names of their results."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from bench.results import Row
from greenfast.search.targets.cuda import gpu_count

GPU_NAMES = {"h200": "NVIDIA H200", "h100": "NVIDIA H100 80GB HBM3"}  # as the driver names them
DEFAULT = "h200"


def add_gpu(parser: argparse.ArgumentParser) -> None:
    """The option of scripts that read or write the results of one GPU model."""
    parser.add_argument(
        "--gpu",
        choices=sorted(GPU_NAMES),
        default=visible_model(),
        help="the model that results are of; the visible GPU's, else %(default)s",
    )


def visible_model() -> str:
    """The model of the first visible GPU; DEFAULT where it has no results, or there is none."""
    if not gpu_count():
        return DEFAULT
    import torch

    models = {name: model for model, name in GPU_NAMES.items()}
    return models.get(torch.cuda.get_device_name(0), DEFAULT)


def result_of(name: str, dtype: str, gpu: str = DEFAULT) -> str:
    """The name of a result of that type: `h200/runtime_grid_fp16`."""
    return f"{gpu}/{name}" if dtype == "bf16" else f"{gpu}/{name}_{dtype}"


def set_name(gpu: str) -> str:
    """The file of the shipped attention set."""
    return f"attention-{gpu}.zip"


def kernel_of(dims: Row, dtype: str, mask: str, gpu: str) -> str | None:
    """Of today's set, for a shape of attention; None where PyTorch runs."""
    import greenfast

    sizes: Iterable[tuple[str, int]] = dims.items()
    answer = greenfast.explain(
        "attention", gpu=GPU_NAMES[gpu], dtype=dtype, mask=mask, **dict(sizes)
    )
    return answer.kernel
