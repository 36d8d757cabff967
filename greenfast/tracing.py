"""Records the shapes, types, masks and strides of the operations that a PyTorch program calls.

    with greenfast.trace("mine.toml"):
        model(tokens)

`F.scaled_dot_product_attention`, `F.rms_norm` (so `nn.RMSNorm`, too) and `F.linear` are recorded
and passed on unchanged. Two ways find them: a TorchFunctionMode, also for functions that a program
imported before; and wrappers in `torch.nn.functional`, for calls that PyTorch makes itself, such as
those of `nn.MultiheadAttention`. Neither sees calls inside of compiled graphs, so functions that
torch.compile made run uncompiled meanwhile. Other ways to write these operations are counted with
the reason why no kernel covers them. `greenfast trace` runs this file by its path in the program's
own interpreter, so it needs nothing but the standard library and PyTorch.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

MOST_EVENTS = 256  # pairs of CUDA events a shape; later calls are counted at the mean
MOST_SHAPES = 10_000
MOST_MASK_ELEMENTS = 1 << 24  # of a mask whose values are looked at
HIDDEN_BELOW = -1e4  # a bias that hides its key
DTYPES = {"torch.float16": "fp16", "torch.bfloat16": "bf16", "torch.float32": "float32"}
STRIDE_ELEMENTS = 8  # of every dim but the last


@dataclass(frozen=True)
class Shape:
    """The identity of a call: the kernel with its values, or why no kernel covers it."""

    kernel: str
    dims: tuple[tuple[str, int], ...]
    options: tuple[tuple[str, str], ...]
    strides: tuple[tuple[str, tuple[int, ...]], ...]
    reason: str = ""  # empty: covered, as far as the call alone tells


@dataclass
class Calls:
    """The calls of one shape."""

    count: int = 0
    host_s: float = 0.0
    device_us: float = 0.0
    timed: int = 0  # calls with a device time
    events: list[tuple[Any, Any]] = field(default_factory=list)

    @property
    def device_total_us(self) -> float | None:
        """The time of all calls, at the mean of the timed ones; None without a device time.

        The first timed call includes loading the kernel, so it counts only where it is alone.
        """
        return self.device_us / self.timed * self.count if self.timed else None

    def settle(self) -> None:
        """Read the events, which have all passed."""
        times = [before.elapsed_time(after) * 1000.0 for before, after in self.events]
        kept = times[1:] if len(times) > 1 else times
        self.device_us, self.timed = self.device_us + sum(kept), self.timed + len(kept)
        self.events = []


class Traced:
    """The calls that were seen, by shape."""

    def __init__(self) -> None:
        self.calls: dict[Shape, Calls] = {}
        self.lost = 0  # calls that this tracer could not read, through its own fault
        self.lock = threading.Lock()
        self.here = threading.local()  # `inside`: this thread is in a call that is recorded

    def calls_of(self, shape: Shape) -> Calls:
        if shape not in self.calls and len(self.calls) >= MOST_SHAPES:
            shape = Shape(shape.kernel, (), (), (), f"more than {MOST_SHAPES} different shapes")
        return self.calls.setdefault(shape, Calls())

    def note(self, kernel: str, reason: str) -> None:
        """Count a call that no kernel covers."""
        with self.lock:
            self.calls_of(Shape(kernel, (), (), (), reason)).count += 1

    def settle(self) -> None:
        """Wait for the device and read the times."""
        pending = [calls for calls in self.calls.values() if calls.events]
        if pending:
            import torch

            torch.cuda.synchronize()
        for calls in pending:
            calls.settle()

    def as_json(self) -> dict[str, Any]:
        self.settle()
        rows = [
            {
                "kernel": shape.kernel,
                "dims": dict(shape.dims),
                "options": dict(shape.options),
                "strides": {name: list(each) for name, each in shape.strides},
                "reason": shape.reason,
                "count": calls.count,
                "host_s": calls.host_s,
                "device_us": calls.device_total_us,
            }
            for shape, calls in self.calls.items()
            if calls.count  # a call that raised was none
        ]
        return {"schema": 1, "lost": self.lost, "calls": rows}


class _NotCovered(Exception):
    """The kernel's semantics do not cover the call."""


def _attention(arguments: Mapping[str, Any]) -> Shape:
    q, k, v = (_tensor(arguments, name) for name in ("query", "key", "value"))
    strides = tuple(
        (name, tuple(each.stride())) for name, each in zip("qkv", (q, k, v), strict=True)
    )
    if q.dim() != 4 or k.dim() != 4 or v.dim() != 4:
        return Shape("attention", (), (), strides, f"tensors of {q.dim()} dims, not 4")
    dims = {
        "B": q.shape[0],
        "H": q.shape[1],
        "H_kv": k.shape[1],
        "S_q": q.shape[2],
        "S_kv": k.shape[2],
        "D": q.shape[3],
    }
    mask = "causal_top_left" if arguments.get("is_causal") else "none"
    options = {"dtype": _dtype(q, lowered=True), "mask": mask}
    reason = _attention_reason(arguments, q, k, v, dims)
    return _shape("attention", dims, options, strides, reason)


def _attention_reason(
    arguments: Mapping[str, Any], q: Any, k: Any, v: Any, dims: Mapping[str, int]
) -> str:
    scale, mask = arguments.get("scale"), arguments.get("attn_mask")
    reasons = {
        "" if mask is None else _mask_words(mask, dims): mask is not None,
        f"dropout_p={arguments.get('dropout_p')}": bool(arguments.get("dropout_p")),
        f"scale={scale}": scale is not None and not scale > 0,  # the kernels take any other
        "keys and values of different sizes": tuple(k.shape) != tuple(v.shape),
        "a batch that is broadcast": q.shape[0] != k.shape[0],
        "keys of another head size": k.shape[3] != q.shape[3],
        "fewer key heads without enable_gqa": dims["H"] != dims["H_kv"]
        and not arguments.get("enable_gqa"),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _mask_words(mask: Any, dims: Mapping[str, int]) -> str:
    """`an attn_mask`, and which keyword does the same where there is one."""
    import torch

    sizes = (dims["S_q"], dims["S_kv"])
    readable = type(mask) is torch.Tensor and mask.numel() <= MOST_MASK_ELEMENTS
    if not readable or (mask.is_cuda and torch.cuda.is_current_stream_capturing()):
        return "an attn_mask"
    visible = mask if mask.dtype == torch.bool else mask == 0
    if mask.dtype != torch.bool and not bool((visible | (mask < HIDDEN_BELOW)).all()):
        return "an attn_mask of biases"
    if bool(visible.all()):
        return "an attn_mask that hides nothing: pass none"
    triangle = torch.ones(sizes, dtype=torch.bool, device=mask.device)
    if tuple(mask.shape[-2:]) == sizes:
        if bool((visible == triangle.tril()).all()):
            return "an attn_mask that is causal: pass is_causal=True"
        if bool((visible == triangle.tril(sizes[1] - sizes[0])).all()):
            return 'an attn_mask that is mask="causal_bottom_right" of greenfast.attention'
    return "an attn_mask"


def _rms_norm(arguments: Mapping[str, Any]) -> Shape:
    x, weight = _tensor(arguments, "input"), arguments.get("weight")
    weight = None if weight is None else _tensor(arguments, "weight")
    shape = tuple(arguments.get("normalized_shape") or ())
    rows = 1
    for size in x.shape[: x.dim() - len(shape)]:
        rows *= int(size)
    reasons = {
        f"normalised over {len(shape)} dims": len(shape) != 1,
        "no weight": weight is None,
    }  # the kernel takes any eps when it is called
    dims = {"M": rows, "N": x.shape[-1]}
    reason = next((each for each, holds in reasons.items() if holds), "")
    strides = (("x", tuple(x.stride())),)
    return _shape("rmsnorm", dims, {"dtype": _dtype(x)}, strides, reason)


def _linear(arguments: Mapping[str, Any]) -> Shape:
    x, weight = _tensor(arguments, "input"), _tensor(arguments, "weight")
    rows = 1
    for size in x.shape[:-1]:
        rows *= int(size)
    dims = {"M": rows, "N": weight.shape[0], "K": x.shape[-1]}
    strides = (("x", tuple(x.stride())), ("weight", tuple(weight.stride())))
    bias = "no" if arguments.get("bias") is None else "yes"
    return _shape("gemm", dims, {"dtype": _dtype(x, lowered=True), "bias": bias}, strides, "")


def _product(name: str, arguments: Mapping[str, Any]) -> Shape:
    """A product that the kernel gemm does not take: it multiplies rows by a weight [N, K]."""
    operands = [arguments.get("input"), arguments.get("other")] if name == "matmul" else []
    batched = bool(operands) and all(
        operand is not None and operand.dim() > 2 for operand in operands
    )
    if batched or name in ("bmm", "baddbmm"):
        raise _NotCovered(
            f"a batch of products by torch.{name}; attention is known as "
            "F.scaled_dot_product_attention"
        )
    raise _NotCovered(f"torch.{name}; gemm multiplies as F.linear does")


def _shape(
    kernel: str,
    dims: Mapping[str, Any],
    options: Mapping[str, str],
    strides: tuple[tuple[str, tuple[int, ...]], ...],
    reason: str,
) -> Shape:
    return Shape(
        kernel,
        tuple((name, int(size)) for name, size in dims.items()),
        tuple(options.items()),
        strides,
        reason or _stride_reason(strides),
    )


def _stride_reason(strides: Sequence[tuple[str, tuple[int, ...]]]) -> str:
    for name, each in strides:
        if each and each[-1] != 1:
            return f"the last dim of {name} has stride {each[-1]}"
        if any(stride % STRIDE_ELEMENTS for stride in each[:-1]):
            return f"strides of {name} are not multiples of {STRIDE_ELEMENTS} elements"
    return ""


def _tensor(arguments: Mapping[str, Any], name: str) -> Any:
    """The tensor; only plain ones have a shape that a kernel could take."""
    import torch

    tensor = arguments[name]
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        raise _NotCovered(f"a {type(tensor).__name__} for {name}")
    if torch.is_grad_enabled() and tensor.requires_grad:
        raise _NotCovered("gradients are needed: run it under torch.no_grad()")
    return tensor


def _dtype(tensor: Any, *, lowered: bool = False) -> str:
    """The type that the operation computes with; autocast lowers it for some operations."""
    import torch

    dtype = tensor.dtype
    if lowered and dtype.is_floating_point and torch.is_autocast_enabled(tensor.device.type):
        dtype = torch.get_autocast_dtype(tensor.device.type)
    return DTYPES.get(str(dtype), str(dtype).removeprefix("torch."))


# By the name of PyTorch's function: the kernel, the names of its positional arguments, the reader.
READERS: dict[str, tuple[str, tuple[str, ...], Callable[[Mapping[str, Any]], Shape]]] = {
    "scaled_dot_product_attention": (
        "attention",
        ("query", "key", "value", "attn_mask", "dropout_p", "is_causal"),
        _attention,
    ),
    "rms_norm": ("rmsnorm", ("input", "normalized_shape", "weight", "eps"), _rms_norm),
    "linear": ("gemm", ("input", "weight", "bias"), _linear),
    **{
        name: ("gemm", ("input", "other"), functools.partial(_product, name))
        for name in ("matmul", "mm", "addmm", "bmm", "baddbmm", "einsum")
    },
}
SPELLINGS = {"__matmul__": "matmul", "__rmatmul__": "matmul"}
WITH_WEIGHTS = (
    "nn.MultiheadAttention with need_weights=True; with False it calls "
    "F.scaled_dot_product_attention"
)


def _functions() -> dict[Any, str]:
    """PyTorch's functions that are traced, each under every name that it has."""
    import torch
    import torch.nn.functional as functional

    known: dict[Any, str] = {}
    for name in (*READERS, *SPELLINGS):
        for place in (functional, torch, torch._C._nn, torch.Tensor):
            if (function := getattr(place, name, None)) is not None:
                while getattr(function, "is_tracer", False):  # of an outer trace
                    function = function.__wrapped__
                known[function] = SPELLINGS.get(name, name)
    return known


class _Wrappers:
    """Replaces built-in functions of `torch.nn.functional` while a block runs.

    TorchScript knows built-in functions by their identity, so it needs to know the replacements.
    `rms_norm` is Python, which TorchScript compiles, so it stays.
    """

    def __init__(self, traced: Traced) -> None:
        self.traced = traced
        self.originals: dict[str, Any] = {}
        self.own: dict[str, Any] = {}

    def __enter__(self) -> None:
        import torch.nn.functional as functional

        known = _scripted_functions()
        for name in ("scaled_dot_product_attention", "linear"):
            original = getattr(functional, name, None)
            if original is None or known is None or id(original) not in known:
                continue
            self.originals[name] = original
            self.own[name] = _wrapper(self.traced, name, original)
            known[id(self.own[name])] = known[id(original)]
            setattr(functional, name, self.own[name])

    def __exit__(self, *_: object) -> None:
        import torch.nn.functional as functional

        known = _scripted_functions()
        for own in self.own.values():
            if known is not None:
                known.pop(id(own), None)
        for name, original in self.originals.items():
            if getattr(functional, name) is self.own[name]:
                setattr(functional, name, original)


def _scripted_functions() -> dict[int, str] | None:
    """TorchScript's table of built-in functions; None in a PyTorch that keeps it elsewhere."""
    try:
        from torch.jit import _builtins

        table: dict[int, str] = _builtins._get_builtin_table()
    except (ImportError, AttributeError):
        return None
    return table


def _wrapper(traced: Traced, name: str, original: Any) -> Any:
    @functools.wraps(original)
    def recording(*args: Any, **kwargs: Any) -> Any:
        if _is_compiling():
            return original(*args, **kwargs)
        return _recorded(traced, name, original, args, kwargs)

    recording.is_tracer = True  # type: ignore[attr-defined]
    return recording


@contextlib.contextmanager
def _recording(traced: Traced) -> Iterator[None]:
    with _uncompiled(), _mode(traced), _Wrappers(traced):
        yield


def _uncompiled() -> contextlib.AbstractContextManager[Any]:
    """Run the code that torch.compile made uncompiled; needs PyTorch 2.6."""
    import torch

    set_stance = getattr(torch.compiler, "set_stance", None)
    if set_stance is None or "torch._dynamo" not in sys.modules:  # nothing is compiled yet
        return contextlib.nullcontext()
    return contextlib.nullcontext() if _is_compiling() else set_stance("force_eager")


def _mode(traced: Traced) -> Any:
    """A TorchFunctionMode that records into `traced`."""
    from torch.overrides import TorchFunctionMode

    functions = _functions()

    class Mode(TorchFunctionMode):  # type: ignore[misc, unused-ignore]
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            name = functions.get(func) if _is_hashable(func) else None
            if name is None or _is_compiling():
                _note_other_attention(traced, func, kwargs)
                return func(*args, **kwargs)
            return _recorded(traced, name, func, args, kwargs)

    return Mode()


def _note_other_attention(traced: Traced, func: Any, kwargs: Mapping[str, Any]) -> None:
    """Count ways to attention that are no call of F.scaled_dot_product_attention."""
    name = getattr(func, "__name__", "")
    if name == "multi_head_attention_forward" and kwargs.get("need_weights", True):
        traced.note("attention", WITH_WEIGHTS)
    elif name == "flex_attention":
        traced.note("attention", "flex_attention; F.scaled_dot_product_attention is covered")


def _is_hashable(func: Any) -> bool:
    try:
        hash(func)
    except TypeError:
        return False
    return True


def _is_compiling() -> bool:
    import torch

    return bool(torch.compiler.is_compiling())


def _recorded(traced: Traced, name: str, func: Any, args: Any, kwargs: Any) -> Any:
    """Call `func`, and record the call. Failures of the recording are ignored."""
    if getattr(traced.here, "inside", False):
        return func(*args, **kwargs)
    calls, before = None, None
    try:
        calls = traced.calls_of(_read(name, args, kwargs))
        before = _event(args, kwargs) if len(calls.events) < MOST_EVENTS else None
    except Exception:
        traced.lost += 1
    started, traced.here.inside = time.perf_counter(), True
    try:
        result = func(*args, **kwargs)
    finally:
        traced.here.inside = False
    if calls is not None:
        with traced.lock:
            calls.count += 1
            calls.host_s += time.perf_counter() - started
        try:
            after = _event(args, kwargs) if before is not None else None
            if after is not None:
                calls.events.append((before, after))
        except Exception:
            calls.events.clear()
    return result


def _read(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Shape:
    kernel, names, reader = READERS[name]
    try:
        return reader({**dict(zip(names, args, strict=False)), **kwargs})
    except _NotCovered as reason:
        return Shape(kernel, (), (), (), str(reason))


def _event(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """An event on the current stream; None if the call runs on no GPU, or is being captured."""
    import torch

    first = next(
        (argument for argument in (*args, *kwargs.values()) if torch.is_tensor(argument)), None
    )
    if first is None or first.device.type != "cuda" or torch.cuda.is_current_stream_capturing():
        return None
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(first.device))
    return event


class trace:  # noqa: N801  used as a function: `with greenfast.trace("mine.toml"):`
    """Record what a PyTorch program calls; write workloads files when the block ends.

    `path` ends in .toml, .json or .csv; without it nothing is written. The value of `with` is a
    Traced. A block that ends with an exception writes the calls up to then.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = None if path is None else os.fspath(path)
        self.traced = Traced()

    def __enter__(self) -> Traced:
        self._recording = _recording(self.traced)
        self._recording.__enter__()
        return self.traced

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._recording.__exit__(None, None, None)
        self.traced.settle()
        if self.path is not None:
            from pathlib import Path

            from greenfast.traced import write_workloads

            write_workloads(self.traced.as_json(), Path(self.path))


def _run_traced(result: str, how: str, program: str, arguments: list[str]) -> None:
    """Run a script, a module (`-m`) or code (`-c`) as __main__, and write its calls."""
    import runpy

    try:
        import torch  # noqa: F401  the program needs it in any case
    except ImportError as error:
        sys.exit(f"greenfast trace: {sys.executable} cannot import PyTorch: {error}")
    traced = Traced()
    sys.argv = [program if how != "-c" else "-c", *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(program)) if how == "path" else os.getcwd()
    try:
        with _recording(traced):
            if how == "-m":
                runpy.run_module(program, run_name="__main__", alter_sys=True)
            elif how == "-c":
                exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
            else:
                runpy.run_path(program, run_name="__main__")
    finally:
        with open(result, "w", encoding="utf-8") as file:
            json.dump(traced.as_json(), file)


if __name__ == "__main__":
    _run_traced(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
