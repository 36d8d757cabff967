"""The public functions without PyTorch, and `explain`. torch_front.py has those for its tensors."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import FunctionType, ModuleType
from typing import Any

from greenfast.runtime.bad_arguments import require_right_kinds
from greenfast.runtime.calls import Prepared, Refused, choose, run
from greenfast.runtime.driver import device_facts
from greenfast.runtime.explanation import Explanation, explanation
from greenfast.runtime.frameworks import (
    Framework,
    framework_of,
    returned_like,
    through_dlpack,
)
from greenfast.runtime.kernel_set import KernelSet
from greenfast.runtime.layouts import misaligned
from greenfast.runtime.operation import LARGEST_DIM
from greenfast.runtime.program import TensorFacts, contiguous_strides
from greenfast.runtime.signatures import (
    POINTER_BYTES,
    AttentionArguments,
    Place,
    activation_option,
    attention_call,
    linear_call,
    linear_tensors,
    mask_name,
    rms_norm_call,
    served,
    set_of,
)
from greenfast.runtime.tuned import set_for
from greenfast.search.errors import Fault, GreenfastError, UsageError
from greenfast.search.text import one_line, shortened

MOST_SIGNATURES = 1024  # of CuPy's arrays that are kept
OPERATIONS = {"attention": "attention", "linear": "gemm", "rms_norm": "rmsnorm"}
DEFAULT_GPU = "NVIDIA H200"  # of shapes that are explained where there is no GPU


def public(name: str) -> Callable[..., Any]:
    """One of OPERATIONS: PyTorch's form as soon as PyTorch is imported."""
    if "torch" in sys.modules:
        importlib.import_module("greenfast.runtime.torch_ops")
        function: Callable[..., Any] = getattr(_torch_module(name), name)
        return function
    return FUNCTIONS[name]


def _torch_module(name: str) -> ModuleType:
    """The module with an operation's form for PyTorch's tensors."""
    home = "torch_linear" if name == "linear" else "torch_front"
    return importlib.import_module(f"greenfast.runtime.{home}")


def attention(
    q: Any,
    k: Any,
    v: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    mask: str | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    out: Any = None,
) -> Any:
    """softmax(scale * q k^T + mask) v, for arrays of CuPy and of libraries that speak DLPack.

    Shapes, results and errors are those of greenfast.runtime.torch_front.attention, which runs if
    PyTorch is imported. Without PyTorch, a call that no kernel serves is UsageError `no_kernel`.
    """
    if "torch" in sys.modules:
        return public("attention")(
            q,
            k,
            v,
            attn_mask,
            dropout_p,
            is_causal,
            mask=mask,
            scale=scale,
            enable_gqa=enable_gqa,
            return_lse=return_lse,
            out=out,
        )
    given = AttentionArguments(
        q, k, v, attn_mask, dropout_p, is_causal, mask, scale, enable_gqa, return_lse, out
    )
    try:
        return attention_elsewhere(given)
    except Exception as error:
        require_right_kinds("attention", error, given._asdict())
        raise


def attention_elsewhere(given: AttentionArguments) -> Any:
    """Arrays of CuPy, and of libraries that speak DLPack."""
    name = mask_name(given.is_causal, given.mask)
    settings = {
        "mask": name,
        "scale": given.scale,
        "enable_gqa": given.enable_gqa,
        "return_lse": given.return_lse,
    }
    framework = framework_of(given.q)
    if framework is None or framework.name != "cupy":
        return _elsewhere("attention", given[:5], given.out, settings)
    tensors = {"q": given.q, "k": given.k, "v": given.v}
    if given.attn_mask is not None or given.dropout_p or given.out is not None:
        state: Prepared | Refused = Refused("attn_mask, dropout_p and out are for PyTorch")
    else:
        state = _attention_state(
            tuple(map(framework.facts, tensors.values())),
            name,
            given.scale,
            given.enable_gqa,
            given.return_lse,
            framework.device(given.q),
            _place(framework, tensors),
        )
    if isinstance(state, Refused):
        _require_torch("attention", state)
        return _elsewhere("attention", given[:5], given.out, settings)
    return _launched(state, framework, tensors, ("o", "lse") if given.return_lse else ("o",))


def rms_norm(x: Any, weight: Any, residual: Any = None, eps: float = 1e-6) -> Any:
    """RMSNorm with a fused residual add, as `attention` for other libraries than PyTorch.

    Shapes, results and errors are those of greenfast.runtime.torch_front.rms_norm.
    """
    if "torch" in sys.modules:
        return public("rms_norm")(x, weight, residual, eps)
    try:
        return rms_norm_elsewhere(x, weight, residual, eps)
    except Exception as error:
        arguments = {"x": x, "weight": weight, "residual": residual, "eps": eps}
        require_right_kinds("rms_norm", error, arguments)
        raise


def rms_norm_elsewhere(x: Any, weight: Any, residual: Any, eps: float) -> Any:
    framework = framework_of(x)
    if framework is None or framework.name != "cupy":
        return _elsewhere("rms_norm", (x, weight, residual, eps), None, {})
    given = {"x": x, "residual": residual, "weight": weight}
    given = {name: tensor for name, tensor in given.items() if tensor is not None}
    facts = tuple((name, framework.facts(tensor)) for name, tensor in given.items())
    state = _rms_norm_state(facts, eps, framework.device(x), _place(framework, given))
    if isinstance(state, Refused):
        _require_torch("rms_norm", state)
        return _elsewhere("rms_norm", (x, weight, residual, eps), None, {})
    return _launched(state, framework, given, ("y", "h"))


def linear(
    x: Any, weight: Any, bias: Any = None, activation: str = "none", residual: Any = None
) -> Any:
    """activation(x weight^T + bias) + residual, as `attention` for other libraries than PyTorch.

    Shapes, results and errors are those of greenfast.runtime.torch_linear.linear.
    """
    if "torch" in sys.modules:
        return public("linear")(x, weight, bias, activation, residual)
    try:
        return linear_elsewhere(x, weight, bias, activation, residual)
    except Exception as error:
        named = {"x": x, "weight": weight, "bias": bias, "activation": activation}
        require_right_kinds("linear", error, {**named, "residual": residual})
        raise


def linear_elsewhere(x: Any, weight: Any, bias: Any, activation: str, residual: Any) -> Any:
    framework = framework_of(x)
    settings = {"activation": activation, "residual": residual}
    if framework is None or framework.name != "cupy":
        settings["residual"] = _shared(residual)
        return _elsewhere("linear", (x, weight, bias), None, settings)
    tensors = {"a": x, "b": weight, "bias": bias, "residual": residual}
    tensors = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    facts = tuple((name, framework.facts(tensor)) for name, tensor in tensors.items())
    state = _linear_state(facts, activation, framework.device(x), _place(framework, tensors))
    if isinstance(state, Refused):
        _require_torch("linear", state)
        settings["residual"] = _shared(residual)
        return _elsewhere("linear", (x, weight, bias), None, settings)
    for name in state.copies:  # which are those of rows
        tensors[name] = tensors[name].reshape(state.copies[name].shape)
    unread = {"bias": x, "residual": x}  # which every kernel takes, and reads on request
    result = _launched(state, framework, {**tensors, **unread, **tensors}, ("c",))
    return result.reshape((*x.shape[:-1], weight.shape[0]))


@lru_cache(MOST_SIGNATURES)
def _linear_state(
    facts: tuple[tuple[str, TensorFacts], ...], activation: str, device: int | None, place: Place
) -> Prepared | Refused:
    tensors = linear_tensors(dict(facts))
    call = tensors if isinstance(tensors, Refused) else linear_call(tensors, activation)
    return served("gemm", call, device, place)


@lru_cache(MOST_SIGNATURES)
def _attention_state(
    facts: tuple[TensorFacts, ...],
    mask: str,
    scale: float | None,
    grouped: bool,
    lse: bool,
    device: int | None,
    place: Place,
) -> Prepared | Refused:
    call = attention_call(
        dict(zip("qkv", facts, strict=True)), mask, scale, grouped=grouped, lse=lse
    )
    return served("attention", call, device, place)


@lru_cache(MOST_SIGNATURES)
def _rms_norm_state(
    facts: tuple[tuple[str, TensorFacts], ...], eps: float, device: int | None, place: Place
) -> Prepared | Refused:
    return served("rmsnorm", rms_norm_call(dict(facts), eps), device, place)


def _elsewhere(name: str, arguments: tuple[Any, ...], out: Any, settings: dict[str, Any]) -> Any:
    """The operation on the same memory in PyTorch or CuPy, and the result in the caller's."""
    if out is not None:
        raise UsageError(
            "out cannot be written: arrays converted through DLPack are read-only", code="bad_call"
        )
    if framework_of(arguments[0]) is None:
        through_dlpack(arguments[0])  # which says so where it is no tensor
    result = public(name)(*map(_shared, arguments), **settings)
    if isinstance(result, tuple):
        return tuple(returned_like(arguments[0], item) for item in result)
    return returned_like(arguments[0], result)


def _shared(item: Any) -> Any:
    """A tensor of another library as one of PyTorch or CuPy; other arguments as they are."""
    framework = framework_of(item)
    is_torch = framework is not None and framework.name == "torch"
    return through_dlpack(item) if hasattr(item, "__dlpack__") and not is_torch else item


def _place(framework: Framework, tensors: Mapping[str, Any]) -> Place:
    """Where CuPy's arrays lie. They may be copied if there is no PyTorch to take them."""
    addresses = {name: framework.address(tensor) for name, tensor in tensors.items()}
    return Place(misaligned(POINTER_BYTES, addresses), "torch" not in sys.modules)


def _require_torch(operation: str, state: Refused) -> None:
    """CuPy has no operation to fall back to; PyTorch's is called where the program uses it."""
    if "torch" not in sys.modules:
        raise UsageError(
            f"no kernel computes this {operation}: {state.why}",
            code="no_kernel",
            mend="import torch, whose own operation then runs, or pass tensors of PyTorch",
        )


def _launched(
    state: Prepared, framework: Framework, tensors: dict[str, Any], outputs: tuple[str, ...]
) -> Any:
    """Launch on CuPy's arrays."""
    first = next(iter(tensors.values()))
    for name, facts in state.plan.geometry.outputs.items():
        tensors[name] = framework.empty(facts, first)
    with state.plan.driver.on(state.plan.device):
        stream = framework.stream(state.plan.device)
        run(state.plan, framework, tensors, first, stream, state.copies)
    results = tuple(tensors[name] for name in outputs)
    return results[0] if len(results) == 1 else results


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "attention": attention,
    "linear": linear,
    "rms_norm": rms_norm,
}


# ---- explain ----


def explain(operation: Any, *inputs: Any, **settings: Any) -> Explanation:
    """Which kernel a call would run and why, or why PyTorch's own operation would. Runs nothing.

    `operation` is `greenfast.attention`, `linear`, `rms_norm` or one of their names. The call's
    arguments follow, or dims and options by name:
    `explain("attention", gpu="NVIDIA H200", B=2, H=8, S_q=256, D=64, dtype="bf16")`. `gpu` is by
    default this machine's first GPU, or an H200 if there is none. UsageError `unknown_operation`,
    `missing_input`, `bad_mask`, `bad_activation` or `bad_call`.
    """
    name = operation.__name__ if isinstance(operation, FunctionType) else operation
    if not isinstance(name, str) or name not in OPERATIONS:
        raise UsageError(
            f"unknown operation {shortened(one_line(repr(name)), 60)}",
            code="unknown_operation",
            mend="known: " + ", ".join(OPERATIONS),
        )
    signature = inspect.signature(FUNCTIONS[name])
    if not inputs and next(iter(signature.parameters)) not in settings:
        return _explained_shape(OPERATIONS[name], settings)
    try:
        bound = signature.bind(*inputs, **settings)
    except TypeError as error:
        raise UsageError(
            f"{name}: {error}",
            code="missing_input" if "missing" in str(error) else "bad_call",
            mend="its arguments are " + ", ".join(signature.parameters),
        ) from None
    bound.apply_defaults()
    arguments = bound.arguments
    require_right_kinds(name, None, arguments)
    if name == "linear":
        activation_option(arguments["activation"])
    try:
        kernels = set_of(OPERATIONS[name], _device_of(bound.args[0]))
        state = _state(name, arguments)
    except Exception as error:
        if isinstance(error, GreenfastError):
            raise
        why = f"{type(error).__name__}: {shortened(one_line(error), 200)}"
        raise UsageError(f"{name} cannot take these arguments: {why}", code="bad_call") from error
    if isinstance(kernels, Refused):
        return Explanation(OPERATIONS[name], None, kernels.why, "")
    return explanation(kernels, state)


def _state(name: str, arguments: Mapping[str, Any]) -> Prepared | Refused:
    first = next(iter(arguments.values()))
    framework = framework_of(first)
    if framework is None or framework.name == "numpy":
        arguments = {key: _shared(value) for key, value in arguments.items()}
        first = next(iter(arguments.values()))
        framework = framework_of(first)
    assert framework is not None  # PyTorch's or CuPy's
    if framework.name == "torch":
        state: Prepared | Refused = getattr(_torch_module(name), f"explained_{name}")(**arguments)
        return state
    given = {key: value for key, value in arguments.items() if value is not None}
    device = framework.device(first)
    if name == "linear":
        activation = given.pop("activation")
        known = {"x": "a", "weight": "b"}  # in kernel.toml
        tensors = tuple((known.get(key, key), framework.facts(each)) for key, each in given.items())
        named = {known.get(key, key): each for key, each in given.items()}
        return _linear_state(tensors, activation, device, _place(framework, named))
    if name == "rms_norm":
        eps = float(given.pop("eps"))
        facts = tuple((key, framework.facts(each)) for key, each in given.items())
        return _rms_norm_state(facts, eps, device, _place(framework, given))
    qkv = {key: given[key] for key in "qkv"}
    mask = mask_name(bool(given["is_causal"]), given.get("mask"))
    scale, grouped, lse = given.get("scale"), bool(given["enable_gqa"]), bool(given["return_lse"])
    shapes = tuple(map(framework.facts, qkv.values()))
    place = _place(framework, qkv)
    return _attention_state(shapes, mask, scale, grouped, lse, device, place)


def _device_of(tensor: Any) -> int | None:
    framework = framework_of(tensor)
    if framework is None or framework.name == "numpy":
        tensor = through_dlpack(tensor)
        framework = framework_of(tensor)
    return framework.device(tensor) if framework else None


def _gpu_here() -> str:
    """The name of the first GPU; DEFAULT_GPU if there is none."""
    try:
        return device_facts(0).name
    except Fault:
        return DEFAULT_GPU


def _explained_shape(operation: str, settings: dict[str, Any]) -> Explanation:
    """From dims and options by name, on a GPU that need not be there."""
    gpu = settings.pop("gpu", None)
    if operation == "gemm" and "activation" in settings:
        require_right_kinds("linear", None, {"activation": settings["activation"]})
        settings["activation"] = activation_option(settings["activation"])
    kernels = set_for(operation, _gpu_here() if gpu is None else str(gpu))
    if isinstance(kernels, str):
        return Explanation(operation, None, kernels, "")
    from greenfast.runtime.calls import Call

    values = _complete(kernels, settings)
    tensors = {}
    for argument in kernels.operation.tensors:
        if not argument.output:
            shape = tuple(int(values[dim]) for dim in argument.shape)
            dtype = str(values["dtype"]) if argument.dtype == "dtype" else argument.dtype
            tensors[argument.name] = TensorFacts(dtype, shape, contiguous_strides(shape))
    options = {name: values[name] for name, _ in kernels.operation.options if name != "dtype"}
    choice = choose(kernels, Call(tensors, options, {}))
    if choice.program is None:
        return Explanation(operation, None, choice.why, kernels.origin, measured=choice.measured)
    return Explanation(
        operation,
        choice.program.name,
        choice.why,
        kernels.origin,
        choice.program.source_digest,
        (),
        choice.measured,
    )


def _complete(kernels: KernelSet, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Dims and options with their defaults; UsageError for unknown or missing ones."""
    operation = kernels.operation
    known = [*(dim.name for dim in operation.dims), *(name for name, _ in operation.options)]
    if unknown := sorted(settings.keys() - set(known)):
        raise UsageError(
            f"{operation.name} has no {unknown[0]!r}", code="bad_call", mend=", ".join(known)
        )
    values = {**dict(operation.options), **settings}
    for option, choices in operation.option_values:
        value = values[option]
        is_type = option == "dtype"  # one that no kernel has is the library's
        if not isinstance(value, str) or not (is_type or value in choices):
            raise UsageError(
                f"{operation.name} has no {option} {shortened(one_line(repr(value)), 40)}",
                code={"mask": "bad_mask", "activation": "bad_activation"}.get(option, "bad_call"),
                mend=f"known: {', '.join(choices)}",
            )
    for dim in operation.dims:
        if dim.name not in values:
            if dim.default is None:
                raise UsageError(f"the dim {dim.name} is missing", code="bad_call")
            values[dim.name] = dim.default(values)
        size = values[dim.name]
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= LARGEST_DIM:
            raise UsageError(
                f"{dim.name}={shortened(repr(size), 40)} is not a size",
                code="bad_call",
                mend=f"sizes are whole numbers from 0 to {LARGEST_DIM}",
            )
    return values
