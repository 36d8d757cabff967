"""The tensors of a product, torch's product of them, and how far an output may be from it.

bench.gpu.gemm_sweep and bench.gpu.gemm_confirm time both kernels by the same code: `gemm` beside
torch's linear on bf16, and `gemm_fp8` beside torch._scaled_mm on e4m3 codes with a scale a tensor.
Both peers call cuBLASLt. Only the functions that take tensors import torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Tensors = dict[str, Any]
LARGEST_CODE = 448.0


@dataclass(frozen=True)
class Operands:
    """A kernel's operands on a GPU, as contiguous tensors by argument name."""

    kernel: str
    fill: Callable[[Tensors], None]  # with numbers; a [M, K], b [N, K], c [M, N]
    code_bytes: int  # of an element of a and b
    product: Callable[[Tensors], Any]  # torch's product as it is timed
    exact: Callable[[Tensors], Any]  # the product in float32, to compare with
    error: Callable[[Any, Any], Any]  # of an output beside the exact product
    tolerance: float  # of that error

    def tensors(self, workload: str, shift_bytes: int = 0) -> Tensors:
        """Filled tensors of a workload, each `shift_bytes` behind the start of its memory."""
        import torch

        m, n, k = (int(item.partition("=")[2]) for item in workload.split(","))

        def placed(*shape: int, dtype: Any = torch.bfloat16) -> Any:
            shift = shift_bytes // dtype.itemsize
            memory = torch.empty(math.prod(shape) + shift, dtype=dtype, device="cuda")
            return memory[shift:].view(shape)

        codes = torch.bfloat16 if self.code_bytes == 2 else torch.uint8
        tensors = {
            "a": placed(m, k, dtype=codes),
            "b": placed(n, k, dtype=codes),
            "a_scale": placed(1, dtype=torch.float32).fill_(1.0),
            "b_scale": placed(1, dtype=torch.float32).fill_(1.0),
            "bias": placed(n).normal_(),
            "residual": placed(m, n).zero_(),
            "c": placed(m, n).fill_(float("nan")),
        }
        self.fill(tensors)
        return tensors

    def error_of(self, output: Any, exact: Any) -> float:
        """A finite number: JSON has no infinity."""
        error = float(self.error(output.float(), exact))
        return error if math.isfinite(error) else 1e30


def operands(kernel: str) -> Operands:
    return {"gemm": HALVES, "gemm_fp8": CODES}[kernel]


# ---- gemm: bf16 ----


def _fill_halves(tensors: Tensors) -> None:
    tensors["a"].normal_()
    tensors["b"].normal_().div_(math.sqrt(tensors["b"].shape[1]))


def _linear(tensors: Tensors) -> Any:
    import torch

    return torch.nn.functional.linear(tensors["a"], tensors["b"])


def _largest_difference(output: Any, exact: Any) -> Any:
    return (output - exact).abs().max()


# ---- gemm_fp8: e4m3 codes ----


def _fill_codes(tensors: Tensors) -> None:
    import torch

    for name, size in (("a", 1.0), ("b", 1.0 / math.sqrt(tensors["b"].shape[1]))):
        numbers = torch.randn(tensors[name].shape, device="cuda").mul_(size)
        scale = numbers.abs().max() / LARGEST_CODE
        codes = numbers.div_(scale).to(torch.float8_e4m3fn)
        tensors[name].copy_(codes.view(torch.uint8))
        tensors[f"{name}_scale"].fill_(float(scale))


def scaled_mm(tensors: Tensors, fast: bool = True) -> Any:
    """torch's fp8 product: A by rows, B by columns, so that both have K contiguous."""
    import torch

    a, b = (tensors[name].view(torch.float8_e4m3fn) for name in "ab")
    scales = {f"scale_{name}": tensors[f"{name}_scale"].view(()) for name in "ab"}
    return torch._scaled_mm(a, b.T, **scales, out_dtype=torch.bfloat16, use_fast_accum=fast)


def _dequantised(tensors: Tensors) -> Any:
    import torch

    a, b = (tensors[name].view(torch.float8_e4m3fn).float() for name in "ab")
    return (a @ b.T) * (tensors["a_scale"] * tensors["b_scale"])


def _relative_error(output: Any, exact: Any) -> Any:
    return (output - exact).norm() / exact.norm()


HALVES = Operands(
    kernel="gemm",
    fill=_fill_halves,
    code_bytes=2,
    product=_linear,
    exact=lambda tensors: _linear(tensors).float(),
    error=_largest_difference,
    tolerance=0.08,  # outputs are normal numbers in bf16, whose step is 0.03 between 4 and 8
)
CODES = Operands(
    kernel="gemm_fp8",
    fill=_fill_codes,
    code_bytes=1,
    product=scaled_mm,
    exact=_dequantised,
    error=_relative_error,
    tolerance=0.02,  # bf16 gives 0.002 of it, and tensor cores keep few bits of a long sum
)
