"""Linear layers by others, to be timed beside a winner. Run where torch is installed.

`offer(name, dims, options, scalars)` gives {"version", "run"}; `run(tensors)` takes and gives torch tensors by argument
name, a, b, bias, residual and back c. ImportError: not installed. ValueError: another operation than ours.

cublaslt is torch.nn.functional.linear, which adds the bias in cuBLASLt's own epilogue, and separate operations for
activation and residual; torch-compile is the same, fused by Inductor. Without activation and residual there is nothing
to fuse, and torch-compile calls what cublaslt calls.
"""

from __future__ import annotations

NAMES = ("cublaslt", "torch-compile")


def offer(name, dims, options, scalars):
    if options["dtype"] not in ("fp16", "bf16"):
        raise ValueError(f"it does not take {options['dtype']} inputs as ours do")
    if name == "torch-compile" and options["activation"] == "none" and options["residual"] == "no":
        raise ValueError("nothing is there to fuse: it calls what cublaslt calls")
    import torch
    functional = torch.nn.functional

    def layer(a, b, bias, residual):
        a, b = a.T if dims.get("turned_a") else a, b.T if dims.get("turned_b") else b
        c = functional.linear(a, b, bias if options["bias"] == "yes" else None)
        if options["activation"] == "gelu":
            c = functional.gelu(c, approximate="tanh")
        elif options["activation"] == "silu":
            c = functional.silu(c)
        return c + residual if options["residual"] == "yes" else c

    call, version = layer, f"torch {torch.__version__}, linear by cuBLASLt"
    if name == "torch-compile":
        call, version = torch.compile(layer, dynamic=False), f"torch {torch.__version__}, Inductor"

    def run(tensors):
        return {"c": call(tensors["a"], tensors["b"], tensors["bias"], tensors["residual"])}
    return {"version": version, "run": run}
