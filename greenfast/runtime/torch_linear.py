"""`linear` on PyTorch's tensors: a layer's product with its bias, activation and residual."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

from greenfast.runtime.bad_arguments import require_right_kinds
from greenfast.runtime.calls import Prepared, Refused, run
from greenfast.runtime.fallbacks import tell, torch_linear
from greenfast.runtime.signatures import activation_option, linear_call, linear_tensors, served
from greenfast.runtime.torch_checks import PLAIN, unfit
from greenfast.runtime.torch_ready import (
    TENSORS,
    Nothing,
    Ready,
    current_device,
    current_stream,
    one_device,
    place_of,
)

MOST_SIGNATURES = 4096  # kept; beyond them all are prepared again
DEVICES = ("cuda",)  # whose calls become an operator in a graph
SHADOWS = (FakeTensor, FunctionalTensor)  # the tensors of graphs that are being traced

_is_compiling = torch.compiler.is_dynamo_compiling
_grad_enabled = torch.is_grad_enabled
_autocast = torch.is_autocast_enabled
_ready: dict[Any, Ready | Refused] = {}
# The signature of the last call that was launched; threads replace it as a whole.
_last: list[Ready | Nothing] = [Nothing()]


class LinearArguments(NamedTuple):
    """The arguments of a call of `linear`."""

    x: Any  # [..., K]
    weight: Any  # [N, K]
    bias: Any  # [N] or None
    activation: str
    residual: Any  # [..., N] or None

    @property
    def tensors(self) -> dict[str, Any]:
        """The tensors that are given, by their names in kernel.toml."""
        named = {"a": self.x, "b": self.weight, "bias": self.bias, "residual": self.residual}
        return {name: tensor for name, tensor in named.items() if tensor is not None}


def linear(
    x: Any, weight: Any, bias: Any = None, activation: str = "none", residual: Any = None
) -> Any:
    """activation(x weight^T + bias) + residual, rounded once, like torch.nn.functional.linear.

    x [..., K], weight [N, K], bias [N], residual and the result [..., N], of one type. `activation`
    is "none", "gelu_tanh" (gelu(approximate="tanh")) or "silu". PyTorch's operations run, and round
    after each, where no shipped kernel serves the call. UsageError `bad_activation` for another
    activation, `bad_call` for an argument of a wrong kind.
    """
    if _is_compiling():
        return _traced(LinearArguments(x, weight, bias, activation, residual))
    try:
        given: tuple[Any, ...]
        if bias is None:
            given = (x, weight) if residual is None else (x, weight, residual)
        else:
            given = (x, weight, bias) if residual is None else (x, weight, bias, residual)
        options = activation, bias is None, residual is None
        last = _last[0]
        if last.options == options and last.same(*given):
            result = _launched(last, x, weight, bias, residual)
            if result is not None:
                return result
        known = _ready.get((options, layouts(given)))
        if type(known) is Ready and all(type(tensor) in PLAIN for tensor in given):
            graded = _grad_enabled() and any(tensor.requires_grad for tensor in given)
            if not graded and not _autocast():
                result = _launched(known, x, weight, bias, residual)
                if result is not None:
                    known.is_last(_last, given)
                    return result
        return _first(LinearArguments(x, weight, bias, activation, residual), options, known)
    except Exception as error:
        arguments = LinearArguments(x, weight, bias, activation, residual)
        require_right_kinds("linear", error, arguments._asdict())
        raise


def _launched(ready: Any, x: Any, weight: Any, bias: Any, residual: Any) -> Any:
    """The result of a signature's kernel; None if it cannot read the tensors' memory."""
    try:
        x_at, weight_at = x.data_ptr(), weight.data_ptr()
        # Every kernel takes both of the others; it does not read those that its options leave out.
        bias_at = x_at if bias is None else bias.data_ptr()
        residual_at = x_at if residual is None else residual.data_ptr()
    except RuntimeError:  # under torch.func.vmap tensors have no memory of their own
        return None
    if (x_at | weight_at | bias_at | residual_at) & 15 or not ready.quick:
        return None
    if not (one_device or current_device() == ready.ordinal):
        return None
    result = ready.new[0]()
    addresses = (x_at, weight_at, bias_at, residual_at, result.data_ptr())
    ready.launch(addresses, current_stream(ready.ordinal))
    return result


def _first(given: LinearArguments, options: Any, known: Ready | Refused | None) -> Any:
    """A call that is not in the table, or that no kernel of ours serves."""
    if not isinstance(given.x, torch.Tensor):
        from greenfast.runtime.front import linear_elsewhere

        return linear_elsewhere(*given)
    activation_option(given.activation)
    tensors = tuple(given.tensors.values())
    if any(type(tensor) in SHADOWS for tensor in tensors):
        return _operator(given)
    # Of a signature that a kernel serves, this call's memory did not fit.
    state = known if type(known) is Refused else prepared_linear(*given)
    if isinstance(state, Refused):
        tell("linear", state.why)
        if state.always:
            _remember(options, tensors, state)
        return torch_linear(*given)
    ready = Ready(state, tensors, options, ("c",))
    shape = (*given.x.shape[:-1], given.weight.shape[0])
    contiguous = tuple(torch.empty(shape, device="meta").stride())
    ready.allocate(((shape, contiguous, given.x.dtype),))
    _remember(options, tensors, ready)
    result = _new(ready)
    unread = {"bias": given.x, "residual": given.x}
    with ready.plan.driver.on(ready.ordinal):
        run(
            ready.plan,
            TENSORS,
            {**unread, **given.tensors, "c": result},
            given.x,
            current_stream(ready.ordinal),
        )
    return result


def layouts(tensors: tuple[Any, ...]) -> tuple[Any, ...]:
    """The properties of tensors apart from their memory; nothing about other objects."""
    try:
        return tuple(
            (tensor.shape, tensor.stride(), tensor.dtype, tensor.get_device()) for tensor in tensors
        )
    except (AttributeError, TypeError, RuntimeError):
        return ()


def _remember(options: Any, tensors: tuple[Any, ...], state: Ready | Refused) -> None:
    if key := layouts(tensors):
        if len(_ready) >= MOST_SIGNATURES:
            _ready.clear()
        _ready[options, key] = state


def _new(ready: Ready) -> Any:
    shape, strides, dtype = ready.outputs[0]
    return torch.empty_strided(shape, strides, dtype=dtype, device=ready.device)


def prepared_linear(
    x: Any, weight: Any, bias: Any = None, activation: str = "none", residual: Any = None
) -> Prepared | Refused:
    """The shipped kernel for these arguments, or the reason for PyTorch's operations."""
    tensors = LinearArguments(x, weight, bias, activation, residual).tensors
    if why := unfit(tensors.values()):
        return Refused(why)
    if len({tensor.get_device() for tensor in tensors.values()}) > 1:
        return Refused("the tensors are on different devices")
    facts = linear_tensors({name: TENSORS.facts(tensor) for name, tensor in tensors.items()})
    call = facts if isinstance(facts, Refused) else linear_call(facts, activation)
    return served("gemm", call, TENSORS.device(x), place_of(tensors))


explained_linear = prepared_linear  # as greenfast.explain calls it


# ---- torch.compile ----


def _operator(given: LinearArguments) -> Any:
    return torch.ops.greenfast.linear(*given)


def _traced(given: LinearArguments) -> Any:
    """A call under torch.compile: one operator in the graph, or PyTorch's operations."""
    tensors = given.tensors.values()
    grad = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    if grad or given.x.device.type not in DEVICES or given.weight.dim() != 2:
        return torch_linear(*given)
    return _operator(given)
