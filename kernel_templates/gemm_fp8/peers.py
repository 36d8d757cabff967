"""fp8 layers by others, to be timed beside a winner. Run where torch is installed.

`offer(name, dims, options, scalars)` gives {"version", "run"}; `run(tensors)` takes and gives torch tensors by argument
name, a, b, a_scale, b_scale, bias, residual and back c. ImportError: not installed. ValueError: another operation than ours.

Both peers are torch._scaled_mm: cuBLASLt for one scale a tensor, and for a scale a row what torch brings for it. It takes A by rows and
B by columns, which b transposed is, and lengths that are multiples of 16. cuBLASLt has no product of two e5m2 matrices.
scaled-mm-fast leaves all sums to the tensor cores; scaled-mm adds them up in float32 every 128 codes or so.
Activation and residual are operations of their own.
"""

from __future__ import annotations

NAMES = ("scaled-mm-fast", "scaled-mm")


def offer(name, dims, options, scalars):
    if options["format"] != "e4m3":
        raise ValueError("cuBLASLt has no product of two e5m2 matrices")
    if dims["row_scales"] and options["dtype"] != "bf16":
        raise ValueError("torch._scaled_mm with a scale a row gives bfloat16 alone")
    if options["sums"] == "float32" and name == "scaled-mm-fast":
        raise ValueError("it leaves all sums to the tensor cores")
    import torch
    functional = torch.nn.functional
    out = {"fp16": torch.float16, "bf16": torch.bfloat16}[options["dtype"]]

    def run(tensors):
        a, b = (tensors[key].view(torch.float8_e4m3fn) for key in "ab")
        a_scale, b_scale = tensors["a_scale"], tensors["b_scale"]
        if dims["row_scales"]:
            a_scale, b_scale = a_scale.view(-1, 1), b_scale.view(1, -1)
        else:
            a_scale, b_scale = a_scale.view(()), b_scale.view(())
        bias = tensors["bias"] if options["bias"] == "yes" else None
        c = torch._scaled_mm(a, b.T, scale_a=a_scale, scale_b=b_scale, bias=bias, out_dtype=out,
                             use_fast_accum=name == "scaled-mm-fast")
        if options["activation"] == "gelu":
            c = functional.gelu(c, approximate="tanh")
        elif options["activation"] == "silu":
            c = functional.silu(c)
        return {"c": c + tensors["residual"] if options["residual"] == "yes" else c}

    return {"version": f"torch {torch.__version__}, _scaled_mm", "run": run}
