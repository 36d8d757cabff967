"""RMSNorm by others, to be timed beside a winner. Run by search/peers/child.py only, where torch is installed.

`offer(name, dims, options, scalars)` gives {"version", "run"}; `run(tensors)` takes and gives torch tensors by argument
name, x, residual, weight and back h, y. ImportError: not installed. ValueError: another operation than ours.

PyTorch has no fused add: torch-rms-norm is two operations, h = x + residual and torch.nn.functional.rms_norm(h), which
read h again from a cache or memory; torch-compile is the same two, made one kernel by Inductor. FlashInfer's
fused_add_rmsnorm writes over its inputs, and needs a copy of both first, which would be timed with it: it is refused.
Sources: the documentation of torch.nn.functional.rms_norm and torch.compile; docs.flashinfer.ai, flashinfer.norm.
"""

from __future__ import annotations

NAMES = ("torch-rms-norm", "torch-compile", "flashinfer")


def offer(name, dims, options, scalars):
    if options["dtype"] not in ("fp16", "bf16"):
        raise ValueError(f"it does not take {options['dtype']} inputs as ours do")
    if name == "flashinfer":
        raise ValueError("its fused_add_rmsnorm writes y over x and h over residual: another operation than ours")
    import torch
    width, eps = dims["N"], scalars["eps"]

    def two_operations(x, residual, weight):
        h = x + residual
        return h, torch.nn.functional.rms_norm(h, (width,), weight, eps)

    both, version = two_operations, f"torch {torch.__version__}, two operations: add, rms_norm"
    if name == "torch-compile":
        both, version = torch.compile(two_operations, dynamic=False), f"torch {torch.__version__}, Inductor"

    def run(tensors):
        h, y = both(tensors["x"], tensors["residual"], tensors["weight"])
        return {"h": h, "y": y}
    return {"version": version, "run": run}
