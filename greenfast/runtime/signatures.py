"""The calls of attention, RMSNorm and linear in the terms of their kernel.toml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from numbers import Real
from typing import Any, NamedTuple

from greenfast.runtime.calls import Call, Prepared, Refused, prepare, untried_constant
from greenfast.runtime.driver import device_facts
from greenfast.runtime.kernel_set import KernelSet
from greenfast.runtime.program import TensorFacts
from greenfast.runtime.tuned import set_for
from greenfast.search.errors import GreenfastError, UsageError
from greenfast.search.kernels.expressions import Value
from greenfast.search.text import shortened

POINTER_BYTES = 16  # to which the shipped kernels want all tensors aligned
MASKS = ("none", "causal_top_left", "causal_bottom_right")
NO_NUMBER = "{} is of type {}, whose value can change between calls; the kernels take a number"
ACTIVATIONS = {"none": "none", "gelu_tanh": "gelu", "silu": "silu"}  # of linear, in kernel.toml


class AttentionArguments(NamedTuple):
    """The arguments of a call of `attention`, in the order of its parameters."""

    q: Any  # [B, H, S_q, D]
    k: Any  # [B, H_kv, S_kv, D], as v
    v: Any
    attn_mask: Any
    dropout_p: float
    is_causal: bool
    mask: str | None
    scale: float | None
    enable_gqa: bool
    return_lse: bool
    out: Any


def mask_name(is_causal: bool, mask: str | None) -> str:
    """The mask of a call; UsageError for an unknown one, or for two that differ."""
    name = mask if mask is not None else "causal_top_left" if is_causal else "none"
    if name not in MASKS:
        raise UsageError(
            f"unknown mask {shortened(repr(name), 40)}",
            code="bad_mask",
            mend=f"known: {', '.join(MASKS)}; a mask of your own goes into attn_mask",
        )
    if is_causal and name != "causal_top_left":
        raise UsageError(f"is_causal=True and mask={name!r} contradict each other", code="bad_mask")
    return name


def attention_call(
    tensors: Mapping[str, TensorFacts],
    mask: str,
    scale: float | None,
    *,
    grouped: bool,
    lse: bool,
) -> Call | Refused:
    """The call, or the reason why no kernel of ours computes it."""
    shapes = {name: facts.shape for name, facts in tensors.items()}
    if any(len(shape) != 4 for shape in shapes.values()):
        return Refused("q, k and v are not all of the form [B, H, S, D]", always=True)
    (batch, heads, rows, width), key, value = shapes["q"], shapes["k"], shapes["v"]
    if key != value or key[0] != batch or key[3] != width:
        return Refused("the shapes of q, k and v need broadcasting, or k and v differ", always=True)
    if 0 in (batch, heads, rows, width, key[1]):
        return Refused("a tensor is empty", always=True)
    if heads != key[1] and not grouped:
        return Refused(
            "q and k have different numbers of heads, and enable_gqa is off", always=True
        )
    if heads % key[1]:
        return Refused(f"{heads} query heads are not a multiple of {key[1]} key heads", always=True)
    if scale is not None and not isinstance(scale, Real):
        return Refused(NO_NUMBER.format("scale", type(scale).__name__))
    if scale is not None and (why := untried_constant("attention", {"scale": scale})):
        return Refused(why, always=True)
    if mask == "causal_bottom_right" and rows in (1, key[2]):
        mask = "none" if rows == 1 else "causal_top_left"  # which are measured, and the same here
    constants: dict[str, Value] = {} if scale is None else {"scale": float(scale)}
    return Call(tensors, {"mask": mask}, constants, frozenset() if lse else frozenset({"lse"}))


def rms_norm_call(tensors: Mapping[str, TensorFacts], eps: float) -> Call | Refused:
    if "residual" not in tensors:
        return Refused("the kernels add a residual, and the call has none", always=True)
    if "weight" not in tensors:
        return Refused("the kernels multiply by weights, and the call has none", always=True)
    if not isinstance(eps, Real):
        return Refused(NO_NUMBER.format("eps", type(eps).__name__))
    if why := untried_constant("rmsnorm", {"eps": eps}):
        return Refused(why, always=True)
    if 0 in tensors["x"].shape:
        return Refused("a tensor is empty", always=True)
    return Call(tensors, {}, {"eps": float(eps)})


def activation_option(activation: str) -> str:
    """The option of kernel.toml; UsageError for an unknown activation."""
    option = ACTIVATIONS.get(activation)
    if option is None:
        raise UsageError(
            f"unknown activation {shortened(repr(activation), 40)}",
            code="bad_activation",
            mend=f"known: {', '.join(ACTIVATIONS)}; gelu_tanh is gelu(approximate='tanh')",
        )
    return option


def linear_tensors(tensors: Mapping[str, TensorFacts]) -> dict[str, TensorFacts] | Refused:
    """The tensors of `linear` with x and residual as rows, under their names in kernel.toml."""
    facts = dict(tensors)
    for name in ("a", "residual"):
        if name in facts and facts[name].shape:
            rows = rows_of(facts[name])
            if rows is None:
                return Refused("the rows of x or residual are not evenly spaced", always=True)
            facts[name] = rows
    if "residual" in facts and tensors["residual"].shape[:-1] != tensors["a"].shape[:-1]:
        return Refused("residual does not have the shape of the result", always=True)
    return facts


def linear_call(tensors: Mapping[str, TensorFacts], activation: str) -> Call | Refused:
    """a [M, K], b [N, K], and where the call has them bias [N] and residual [M, N]."""
    option = activation_option(activation)
    if "b" not in tensors:
        return Refused("the call has no weight")
    ranks = {"a": 2, "b": 2, "bias": 1, "residual": 2}
    if any(len(facts.shape) != ranks[name] for name, facts in tensors.items()):
        return Refused("weight is not of the form [N, K], or bias not a vector", always=True)
    (rows, terms), (columns, weight_terms) = tensors["a"].shape, tensors["b"].shape
    if terms != weight_terms:
        return Refused(f"x has rows of {terms} elements, weight of {weight_terms}", always=True)
    if 0 in (rows, columns, terms):
        return Refused("a tensor is empty", always=True)
    # Every kernel takes a bias and a residual; it reads those that its options name.
    dtype = tensors["a"].dtype
    unread = {
        "bias": TensorFacts(dtype, (columns,), (1,)),
        "residual": TensorFacts(dtype, (rows, columns), (columns, 1)),
    }
    options = {name: "yes" if name in tensors else "no" for name in unread}
    return Call({**unread, **tensors}, {"activation": option, **options}, {})


class Place(NamedTuple):
    """Where the tensors of a call lie, and whether copies may be made for a kernel."""

    misaligned: frozenset[str] = frozenset()
    may_copy: bool = False


AS_IT_LIES = Place()


def served(
    operation: str, call: Call | Refused, device: int | None, place: Place = AS_IT_LIES
) -> Prepared | Refused:
    """The shipped kernel for a call on a device, or why the library's own operation runs."""
    kernels = set_of(operation, device)
    if isinstance(kernels, Refused):
        return kernels
    if isinstance(call, Refused) or device is None:
        return call if isinstance(call, Refused) else Refused(NOT_ON_A_GPU, always=True)
    call = replace(call, misaligned=place.misaligned)
    return prepare(kernels, call, device, may_copy=place.may_copy)


NOT_ON_A_GPU = "the tensors are not in a GPU's memory"


def set_of(operation: str, device: int | None) -> KernelSet | Refused:
    """The shipped set for a device."""
    if device is None:
        return Refused(NOT_ON_A_GPU, always=True)
    try:
        kernels = set_for(operation, device_facts(device).name)
    except GreenfastError as error:
        return Refused(error.message, always=True)
    return Refused(kernels, always=True) if isinstance(kernels, str) else kernels


def rows_of(facts: TensorFacts) -> TensorFacts | None:
    """A tensor [..., N] as rows [M, N]; None if its rows are not evenly spaced."""
    *outer, width = facts.shape
    *steps, last = facts.strides
    count, step = 1, None
    for size, stride in zip(reversed(outer), reversed(steps), strict=True):
        if size == 1:
            continue
        if step is None:
            step = stride
        elif stride != step * count:
            return None
        count *= size
    return TensorFacts(facts.dtype, (count, width), (width if step is None else step, last))
