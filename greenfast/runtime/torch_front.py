"""`attention` and `rms_norm` on PyTorch's tensors: a comparison, an allocation, a launch.

A call that repeats the last one is recognised by PyTorch's own comparison of tensors
(torch_private.py), any other by its signature in a dict, which takes about three times as long.
Both ways are written for speed: reading an attribute of a tensor takes about 50 ns, and so does a
function call.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

from greenfast.runtime.bad_arguments import require_right_kinds
from greenfast.runtime.calls import Call, Prepared, Refused, run
from greenfast.runtime.fallbacks import (
    evenly_laid,
    is_even,
    tell,
    tell_copies,
    torch_attention,
)
from greenfast.runtime.layouts import require_no_repeats
from greenfast.runtime.program import TensorFacts, contiguous_strides
from greenfast.runtime.signatures import (
    POINTER_BYTES,
    AttentionArguments,
    attention_call,
    mask_name,
    rms_norm_call,
    rows_of,
    served,
)
from greenfast.runtime.torch_checks import PLAIN, unfit
from greenfast.runtime.torch_ready import (
    TENSORS,
    Nothing,
    Ready,
    current_device,
    current_stream,
    layouts,
    one_device,
    place_of,
)
from greenfast.search.errors import UsageError

MOST_SIGNATURES = 4096  # kept; beyond them all are prepared again

# True while Dynamo traces. While anything else makes a graph, its tensors are no plain ones.
_is_compiling = torch.compiler.is_dynamo_compiling
_grad_enabled = torch.is_grad_enabled
_autocast = torch.is_autocast_enabled
_empty = torch.empty_strided
_sdpa = torch.nn.functional.scaled_dot_product_attention
_stream, _device, _one_device = current_stream, current_device, one_device
DEVICES = ("cuda",)  # whose calls become an operator in a graph
BOTTOM_RIGHT = "causal_bottom_right"  # the mask that PyTorch's operation does not have
UNEVEN = (
    "because it or one of its rows begins at no multiple of 16 bytes, or has gaps; PyTorch's "
    "operation would get a copy, too"
)
SHADOWS = (FakeTensor, FunctionalTensor)  # the tensors of graphs that are being traced


_attention: dict[Any, Ready | Refused] = {}
_rms_norm: dict[Any, Ready | Refused] = {}
# The signature of the last call that was launched; threads replace it as a whole.
_last_attention: list[Ready | Nothing] = [Nothing()]
_last_rms_norm: list[Ready | Nothing] = [Nothing()]


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
    """softmax(scale * q k^T + mask) v, like torch.nn.functional.scaled_dot_product_attention.

    q [B, H, S_q, D], k and v [B, H_kv, S_kv, D]. Returns o, like q in shape, type and memory order;
    with `return_lse` (o, lse), where lse [B, H, S_q], float32, is the natural logarithm of each
    row's sum of exponentials. A row that sees no key gives 0 and -inf. `mask` is "none",
    "causal_top_left" (PyTorch's is_causal) or "causal_bottom_right" (FlashAttention's). `scale` is
    D ** -0.5 by default. o is written to `out`, if given. PyTorch's operation runs where no shipped
    kernel serves the call. UsageError `bad_mask`, `bad_out`, `overlap` or `bad_call`.
    """
    if _is_compiling():
        return _traced(
            AttentionArguments(
                q, k, v, attn_mask, dropout_p, is_causal, mask, scale, enable_gqa, return_lse, out
            )
        )
    last = _last_attention[0]
    try:
        if (
            last.same(q, k, v)
            and last.options == (is_causal, mask, scale, enable_gqa, return_lse)
            and attn_mask is None
            and out is None
            and not dropout_p
        ):
            result = _launched(last, q, k, v, return_lse)
            if result is not None:
                return result
        given = AttentionArguments(
            q, k, v, attn_mask, dropout_p, is_causal, mask, scale, enable_gqa, return_lse, out
        )
        return _by_signature(given)
    except Exception as error:
        given = AttentionArguments(
            q, k, v, attn_mask, dropout_p, is_causal, mask, scale, enable_gqa, return_lse, out
        )
        require_right_kinds("attention", error, given._asdict())
        raise


def _launched(ready: Any, q: Any, k: Any, v: Any, return_lse: bool) -> Any:
    """The outputs of a signature's kernel; None if it cannot read the tensors' memory."""
    try:
        q_at, k_at, v_at = q.data_ptr(), k.data_ptr(), v.data_ptr()
    except RuntimeError:  # under torch.func.vmap tensors have no memory of their own
        return None
    if (q_at | k_at | v_at) & 15:
        return None
    if not ready.quick or not (_one_device or _device() == ready.ordinal):
        return _attention_outputs(ready, {"q": q, "k": k, "v": v, "o": _new(ready, 0)}, return_lse)
    o = ready.new[0]()
    if not return_lse:
        ready.launch((q_at, k_at, v_at, o.data_ptr()), _stream(ready.ordinal))
        return o
    lse = ready.new[1]()
    ready.launch((q_at, k_at, v_at, o.data_ptr(), lse.data_ptr()), _stream(ready.ordinal))
    return o, lse


def _begin_evenly(q: Any, k: Any, v: Any) -> bool:
    """Whether all three addresses are multiples of 16 bytes, where they have any."""
    try:
        return not (q.data_ptr() | k.data_ptr() | v.data_ptr()) & 15
    except RuntimeError:  # under torch.func.vmap
        return True


def _by_signature(given: AttentionArguments) -> Any:
    """A call that is not like the last one."""
    q, k, v, attn_mask, dropout_p, is_causal, mask, scale, enable_gqa, return_lse, out = given
    if type(q) in PLAIN and type(k) in PLAIN and type(v) in PLAIN:
        known = _attention.get((layouts(q, k, v), is_causal, mask, scale, enable_gqa, return_lse))
        if type(known) is Ready and attn_mask is None and out is None and not dropout_p:
            graded = _grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
            if not graded and not _autocast():
                result = _launched(known, q, k, v, return_lse)
                if result is not None:
                    known.is_last(_last_attention, (q, k, v))
                    return result
        elif type(known) is Refused and out is None and not return_lse and mask != BOTTOM_RIGHT:
            causal = is_causal or mask == "causal_top_left"
            settings = {"scale": scale, "enable_gqa": enable_gqa}
            if _begin_evenly(q, k, v):
                return _sdpa(q, k, v, attn_mask, dropout_p, causal, **settings)
    return _first_attention(given)


def _first_attention(given: AttentionArguments) -> Any:
    """A call that is not in the table, or that never will be."""
    if not isinstance(given.q, torch.Tensor):
        from greenfast.runtime.front import attention_elsewhere

        return attention_elsewhere(given)
    name = mask_name(given.is_causal, given.mask)
    tensors = {"q": given.q, "k": given.k, "v": given.v}
    plain = given.attn_mask is None and not given.dropout_p and given.out is None
    if type(given.q) in SHADOWS and plain:
        return _operator(*given[:3], name, given.scale, given.enable_gqa, given.return_lse)
    even = _evenly_laid(given) if type(given.q) in PLAIN and given.attn_mask is None else given
    if even is not given:
        return _by_signature(even)
    options = given.is_causal, given.mask, given.scale, given.enable_gqa, given.return_lse
    key = layouts(*tensors.values()), *options
    known = _attention.get(key)
    if type(known) is Refused:
        state: Prepared | Refused = known
    else:
        state = prepared_attention(given, name)
        if isinstance(state, Refused):
            tell("attention", state.why)
    if isinstance(state, Refused):
        if key[0] and state.always and all(map(is_even, tensors.values())):
            _remember(_attention, key, state)
        if given.out is not None:
            _require_out(given.out, given.q)
        o, lse = library_attention(given, name)
        if given.out is not None:
            o = given.out.copy_(o)
        return (o, lse) if given.return_lse else o
    require_right_kinds("attention", None, given._asdict())  # a flag may be a tensor that changes
    names = ("o", "lse") if given.return_lse else ("o",)
    ready = Ready(state, tuple(tensors.values()), options, names)
    _remember(_attention, key, ready)
    if given.out is None:
        return _attention_outputs(ready, {**tensors, "o": _new(ready, 0)}, given.return_lse)
    o = given.out if _is_written(given.out, tensors, state) else _new(ready, 0)
    result = _attention_outputs(ready, {**tensors, "o": o}, given.return_lse)
    if o is not given.out:
        given.out.copy_(o)
    return (given.out, result[1]) if given.return_lse else given.out


def _evenly_laid(given: AttentionArguments) -> AttentionArguments:
    """The call with contiguous copies of those of q, k and v that PyTorch's operation gets, too.

    These copies cost both the same, so the kernel saves the time that its rule rests on.
    """
    tensors = given[:3]
    if all(map(is_even, tensors)) or unfit(tensors):
        return given
    q, k, v = map(evenly_laid, tensors)
    names = [name for name, tensor in zip("qkv", tensors, strict=True) if not is_even(tensor)]
    tell_copies("attention", f"{' and '.join(names)}, {UNEVEN}")
    return given._replace(q=q, k=k, v=v)


def _remember(table: dict[Any, Ready | Refused], key: Any, state: Ready | Refused) -> None:
    if len(table) >= MOST_SIGNATURES:
        table.clear()
    table[key] = state


def prepared_attention(given: AttentionArguments, mask: str) -> Prepared | Refused:
    """The shipped kernel for a call with this mask, or the reason for PyTorch's."""
    if given.attn_mask is not None:
        return Refused("the mask is a tensor; the kernels know none and the two causal ones")
    if given.dropout_p:
        return Refused("the kernels have no dropout")
    tensors = {"q": given.q, "k": given.k, "v": given.v}
    if why := unfit(tensors.values()):
        return Refused(why)
    if len({tensor.get_device() for tensor in tensors.values()}) > 1:
        return Refused("q, k and v are on different devices")
    uneven = {name: TENSORS.facts(each) for name, each in tensors.items() if not is_even(each)}
    facts = {name: uneven.get(name) or TENSORS.facts(each) for name, each in tensors.items()}
    for name, each in uneven.items():  # of which a call makes contiguous copies
        facts[name] = replace(each, strides=contiguous_strides(each.shape))
    call = attention_call(facts, mask, given.scale, grouped=given.enable_gqa, lse=given.return_lse)
    read = {name: each for name, each in tensors.items() if name not in uneven}
    state = served("attention", call, TENSORS.device(given.q), place_of(read))
    if uneven and isinstance(state, Prepared):
        why = f"{state.choice.why}; it runs on a copy of {' and '.join(uneven)}, {UNEVEN}"
        return replace(state, choice=replace(state.choice, why=why))
    return state


def library_attention(given: AttentionArguments, mask: str) -> tuple[Any, Any]:
    """PyTorch's attention with this mask, and with the log-sum-exp if requested."""
    q, k, v, attn_mask, dropout_p, *_ = given
    if not given.return_lse and mask != BOTTOM_RIGHT:
        q, k, v = evenly_laid(q), evenly_laid(k), evenly_laid(v)
        settings = {"scale": given.scale, "enable_gqa": given.enable_gqa}
        return _sdpa(q, k, v, attn_mask, dropout_p, mask != "none", **settings), None
    if attn_mask is None and not dropout_p:
        lse, grouped = given.return_lse, given.enable_gqa
        outputs = torch_attention(q, k, v, mask, given.scale, lse=lse, grouped=grouped)
        return outputs["o"], outputs.get("lse")
    raise UsageError(
        "return_lse and mask='causal_bottom_right' go with neither attn_mask nor dropout_p",
        code="bad_call",
    )


def _new(ready: Ready, number: int) -> Any:
    shape, strides, dtype = ready.outputs[number]
    return _empty(shape, strides, dtype=dtype, device=ready.device)


def _attention_outputs(ready: Ready, tensors: dict[str, Any], return_lse: bool) -> Any:
    if return_lse:
        tensors["lse"] = _new(ready, 1)
    _run(ready, tensors)
    return (tensors["o"], tensors["lse"]) if return_lse else tensors["o"]


def _run(ready: Ready, tensors: dict[str, Any]) -> None:
    with ready.plan.driver.on(ready.ordinal):
        run(ready.plan, TENSORS, tensors, next(iter(tensors.values())), _stream(ready.ordinal))


def _require_out(out: Any, q: Any) -> None:
    """UsageError unless the output can be copied to `out`."""
    if (out.shape, out.dtype, out.device) != (q.shape, q.dtype, q.device):
        raise UsageError(
            f"out has the shape {tuple(out.shape)} and the type {out.dtype}, on {out.device}; this "
            f"call writes {tuple(q.shape)}, {q.dtype}, on {q.device}",
            code="bad_out",
            mend="pass out=torch.empty_like(q)",
        )
    require_no_repeats("out", TENSORS.facts(out))


def _is_written(out: Any, tensors: dict[str, Any], state: Prepared) -> bool:
    """Whether the kernel can write to `out` itself; UsageError if nothing can be copied there."""
    _require_out(out, tensors["q"])
    storages = {tensor.untyped_storage().data_ptr() for tensor in tensors.values()}
    if out.untyped_storage().data_ptr() in storages:
        raise UsageError("out shares memory with an input", code="overlap")
    expected = state.plan.geometry.outputs["o"]
    return TENSORS.facts(out) == expected and out.data_ptr() % POINTER_BYTES == 0


# ---- RMSNorm ----


def rms_norm(x: Any, weight: Any, residual: Any = None, eps: float = 1e-6) -> Any:
    """y = x / sqrt(mean(x^2) + eps) * weight over the last dim.

    x and residual [..., N], weight [N]. With `residual`, h = x + residual is normalised, and the
    result is (y, h); without it, PyTorch's rms_norm runs and the result is y. UsageError `bad_call`
    for an argument of a wrong kind.
    """
    if _is_compiling():  # Inductor makes one kernel of the library's operations, too
        return library_rms_norm(x, weight, residual, eps)
    try:
        last = _last_rms_norm[0]
        if last.same(x, residual, weight) and eps == last.options:
            result = _launched_rms_norm(last, x, residual, weight)
            if result is not None:
                return result
        elif type(x) in PLAIN and type(residual) in PLAIN and type(weight) in PLAIN:
            ready = _rms_norm.get((layouts(x, residual, weight), eps))
            graded = _grad_enabled() and (
                x.requires_grad or residual.requires_grad or weight.requires_grad
            )
            if type(ready) is Ready and not _autocast() and not graded:
                result = _launched_rms_norm(ready, x, residual, weight)
                if result is not None:
                    ready.is_last(_last_rms_norm, (x, residual, weight))
                    return result
        return _first_rms_norm(x, weight, residual, eps)
    except Exception as error:
        arguments = {"x": x, "weight": weight, "residual": residual, "eps": eps}
        require_right_kinds("rms_norm", error, arguments)
        raise


def _launched_rms_norm(ready: Any, x: Any, residual: Any, weight: Any) -> Any:
    """y and h; None if the kernel cannot read the tensors' memory."""
    try:
        x_at, residual_at, weight_at = x.data_ptr(), residual.data_ptr(), weight.data_ptr()
    except RuntimeError:
        return None
    if (x_at | residual_at | weight_at) & 15 or not ready.quick:
        return None
    if not (_one_device or _device() == ready.ordinal):
        return None
    h, y = ready.new[0](), ready.new[1]()
    addresses = (x_at, residual_at, weight_at, h.data_ptr(), y.data_ptr())
    ready.launch(addresses, _stream(ready.ordinal))
    return y, h


def _first_rms_norm(x: Any, weight: Any, residual: Any, eps: float) -> Any:
    if not isinstance(x, torch.Tensor):
        from greenfast.runtime.front import rms_norm_elsewhere

        return rms_norm_elsewhere(x, weight, residual, eps)
    state = prepared_rms_norm(x, weight, residual, eps)
    if isinstance(state, Refused):
        tell("rms_norm", state.why)
        return library_rms_norm(x, weight, residual, eps)
    ready = Ready(state, (x, residual, weight), eps, ("h", "y"))
    # Outputs have the shape of x; the plan knows them as rows.
    contiguous = tuple(torch.empty(x.shape, device="meta").stride())
    ready.allocate(((tuple(x.shape), contiguous, x.dtype),) * 2)
    _remember(_rms_norm, (layouts(x, residual, weight), eps), ready)
    tensors = {
        "x": x,
        "residual": residual,
        "weight": weight,
        "h": _new(ready, 0),
        "y": _new(ready, 1),
    }
    _run(ready, tensors)
    return tensors["y"], tensors["h"]


def prepared_rms_norm(x: Any, weight: Any, residual: Any, eps: float) -> Prepared | Refused:
    if residual is None or weight is None:
        return Refused("the kernels add a residual and multiply by weights; the call lacks one")
    tensors = {"x": x, "residual": residual, "weight": weight}
    if why := unfit(tensors.values()):
        return Refused(why)
    if len({tensor.get_device() for tensor in tensors.values()}) > 1:
        return Refused("the tensors are on different devices")
    if x.shape != residual.shape or x.dim() < 1 or weight.dim() != 1:
        return Refused("x and residual differ in shape, or the weights are not a vector")
    facts = {"weight": TENSORS.facts(weight)}
    for name in ("x", "residual"):
        rows = rows_of(TENSORS.facts(tensors[name]))
        if rows is None:
            return Refused(f"the rows of {name} are not evenly spaced in memory")
        facts[name] = rows
    call = rms_norm_call({name: facts[name] for name in tensors}, eps)
    if isinstance(call, Call):
        # Outputs are dense, whatever gaps x has.
        dense = TensorFacts(facts["x"].dtype, facts["x"].shape, (facts["x"].shape[1], 1))
        call = Call({**call.tensors, "h": dense, "y": dense}, call.options, call.constants)
    return served("rmsnorm", call, TENSORS.device(x), place_of(tensors))


def library_rms_norm(x: Any, weight: Any, residual: Any, eps: float) -> Any:
    h = x if residual is None else x + residual
    y = torch.nn.functional.rms_norm(h, (h.shape[-1],), weight, eps)
    return y if residual is None else (y, h)


# ---- torch.compile ----


def _operator(
    q: Any, k: Any, v: Any, mask: str, scale: float | None, grouped: bool, lse: bool
) -> Any:
    if lse:
        return torch.ops.greenfast.attention_lse(q, k, v, mask, scale, grouped)
    return torch.ops.greenfast.attention(q, k, v, mask, scale, grouped)


def _traced(given: AttentionArguments) -> Any:
    """A call under torch.compile: one operator in the graph, or PyTorch's operation."""
    q, k, v, attn_mask, dropout_p, is_causal, mask, scale, enable_gqa, return_lse, out = given
    name = mask if mask is not None else "causal_top_left" if is_causal else "none"
    grad = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    if grad or attn_mask is not None or dropout_p or q.device.type not in DEVICES or q.dim() != 4:
        o, lse = library_attention(given, name)
        result = (o, lse) if return_lse else o
    else:
        result = _operator(q, k, v, name, scale, enable_gqa, return_lse)
    if out is not None:
        first = result[0] if return_lse else result
        out.copy_(first)
    return result


# ---- explain ----


def explained_attention(
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
) -> Prepared | Refused:
    """The explanation of what `attention` would do with these arguments."""
    given = AttentionArguments(
        q, k, v, attn_mask, dropout_p, is_causal, mask, scale, enable_gqa, return_lse, out
    )
    return prepared_attention(given, mask_name(is_causal, mask))


def explained_rms_norm(
    x: Any, weight: Any, residual: Any = None, eps: float = 1e-6
) -> Prepared | Refused:
    return prepared_rms_norm(x, weight, residual, eps)
