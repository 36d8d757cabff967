"""Random calls of greenfast.attention beside float64 attention, each of them waited for.

    python -m bench.gpu.checked_calls OUT.json [--calls 500] [--seed 1] [--first 0]

A kernel that faults ends its process, so the calls run in child processes: the next
process continues after the call that ended the last one, which is named with its kernel, sizes and
strides. `died` tells where it failed: in greenfast's call, or in the float64 reference after it.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.command_line import require_gpu, script_parser
from bench.gpu.random_calls import random_call
from bench.results import Row, read_json, write_json

LARGEST_ERROR = 2.0  # in errors of PyTorch's own operation on the same inputs
MOST_DEATHS = 6
KEPT = 20  # rows of a kind
KINDS = ("wrong", "refused_by_torch", "faults", "unreferenced", "died")


def main() -> int:
    parser = script_parser(__doc__)
    parser.add_argument("out", type=Path, metavar="OUT.json")
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="earlier calls are drawn only")
    options = parser.parse_args()
    require_gpu()
    write_json(options.out, calls(options.calls, options.seed, options.first))
    return 0


def calls_in_children(count: int, seed: int) -> Row:
    """`calls`, carried on in a fresh process behind each call that ended one."""
    total: Row | None = None
    first = 0
    with tempfile.TemporaryDirectory(prefix="greenfast-calls-") as folder:
        path = Path(folder) / "calls.json"
        for _ in range(MOST_DEATHS):
            path.unlink(missing_ok=True)
            words = ["--calls", str(count), "--seed", str(seed), "--first", str(first)]
            command = [sys.executable, "-m", "bench.gpu.checked_calls", str(path), *words]
            code = subprocess.run(command, check=False).returncode
            if not path.exists():
                raise SystemExit(f"the calls ended with exit code {code} and without a result")
            part = read_json(path)
            total = part if total is None else joined(total, part)
            if not part["died"]:
                break
            first = part["died"][-1]["call"] + 1
    assert total is not None  # of one child at least
    return total


def joined(one: Row, other: Row) -> Row:
    counts = {name: one["counts"][name] + other["counts"][name] for name in one["counts"]}
    worst = max(one["counts"]["worst_error_ratio"], other["counts"]["worst_error_ratio"])
    return {
        "counts": {**counts, "worst_error_ratio": worst},
        **{name: (one[name] + other[name])[:KEPT] for name in KINDS},
        "seed": one["seed"],
    }


def calls(count: int, seed: int, first: int = 0) -> Row:
    import torch

    random.seed(seed)
    torch.manual_seed(seed)
    gpu = torch.cuda.get_device_name()
    kernels = done = 0
    findings: dict[str, list[Row]] = {kind: [] for kind in KINDS}
    worst = 0.0
    for number in range(count):
        q, k, v, settings = random_call(gpu)
        if number < first:
            continue
        done += 1
        kernel, kind, why = checked(q, k, v, settings)
        kernels += kernel is not None
        worst = max(worst, last_ratio())
        if kind:
            row = {"call": number, "kernel": kernel, "why": why}
            findings[kind].append({**row, **described(q, k, v, settings)})
            print(json.dumps({kind: findings[kind][-1]}), flush=True)
        if kind == "died":
            break
    counts = {
        "calls": done,
        "kernels": kernels,
        "fallbacks": done - kernels,
        **{kind: len(rows) for kind, rows in findings.items()},
        "worst_error_ratio": worst,
    }
    return {
        "counts": counts,
        **{kind: rows[:KEPT] for kind, rows in findings.items()},
        "seed": seed,
    }


def checked(q: Any, k: Any, v: Any, settings: Row) -> tuple[str | None, str, str]:
    """The kernel of a call, and what is wrong with it: its kind of KINDS, and a sentence."""
    import torch

    import greenfast

    _RATIO[0] = 0.0
    with torch.no_grad():
        explanation = greenfast.explain(greenfast.attention, q, k, v, **settings)
        kernel = explanation.kernel
        try:
            got = greenfast.attention(q, k, v, **settings)
            torch.cuda.synchronize()
        except Exception as error:  # what a call raises is the finding
            why = f"greenfast's call: {error}"[:300]
            if not alive():
                return kernel, "died", why
            return kernel, "refused_by_torch" if torch_refuses(q, k, v, settings) else "faults", why
        try:
            why = "; ".join(problems(q, k, v, settings, got))
        except RuntimeError as error:
            sentence = f"the float64 reference: {error}"[:300]
            return kernel, "unreferenced" if alive() else "died", sentence
    return kernel, "wrong" if why else "", why


def alive() -> bool:
    """Whether this process may still use the GPU."""
    import torch

    try:
        torch.cuda.synchronize()
        torch.zeros(1, device="cuda").item()
    except RuntimeError:
        return False
    return True


def described(q: Any, k: Any, v: Any, settings: Row) -> Row:
    return {
        "q": [list(q.shape), list(q.stride()), str(q.dtype)],
        "k": [list(k.shape), list(k.stride())],
        "v": [list(v.shape), list(v.stride())],
        "settings": {name: str(value)[:40] for name, value in settings.items()},
    }


def torch_refuses(q: Any, k: Any, v: Any, settings: Row) -> bool:
    """Whether PyTorch's own operation raises on these inputs, too."""
    from greenfast.runtime.fallbacks import torch_attention

    mask = settings.get("mask") or ("causal_top_left" if settings.get("is_causal") else "none")
    try:
        torch_attention(q, k, v, mask, settings.get("scale"), lse=False, grouped=True)
    except RuntimeError:
        return True
    return False


_RATIO = [0.0]


def last_ratio() -> float:
    return _RATIO[0]


def problems(q: Any, k: Any, v: Any, settings: Row, got: Any) -> list[str]:
    """What is wrong with a result: shape, type, NaN, or an error beyond PyTorch's."""
    import torch

    from greenfast.runtime.fallbacks import torch_attention

    mask = settings.get("mask") or ("causal_top_left" if settings.get("is_causal") else "none")
    exact, exact_lse = exact_attention(q, k, v, mask, settings.get("scale"))
    lse = settings.get("return_lse", False)
    o = got[0] if lse else got
    with torch.no_grad():
        torchs = torch_attention(q, k, v, mask, settings.get("scale"), lse=False, grouped=True)["o"]
    faults_seen = []
    if o.shape != q.shape or o.dtype != q.dtype:
        faults_seen.append(f"o is {o.dtype} {tuple(o.shape)}")
        return faults_seen
    error = (o.double() - exact).norm().item()
    own = (torchs.double() - exact).norm().item()
    floor = 1e-3 * exact.norm().item() * (1e-3 if q.dtype == torch.float32 else 1.0)
    _RATIO[0] = error / max(own, floor, 1e-12)
    if not error <= LARGEST_ERROR * max(own, floor):
        faults_seen.append(f"error {error:.3g}; PyTorch's {own:.3g}")
    if lse:
        finite = torch.isfinite(exact_lse)
        same = torch.isclose(got[1].double(), exact_lse, rtol=1e-3, atol=2e-2)
        if not bool((same | (~finite & (got[1].double() == exact_lse))).all()):
            faults_seen.append("lse differs")
    return faults_seen


def exact_attention(q: Any, k: Any, v: Any, mask: str, scale: float | None) -> tuple[Any, Any]:
    """Attention in float64; rows without keys give 0 and -inf."""
    import torch

    repeats = q.shape[1] // k.shape[1]
    keys, values = (tensor.double().repeat_interleave(repeats, 1) for tensor in (k, v))
    scores = q.double() @ keys.transpose(-1, -2) * (scale or q.shape[-1] ** -0.5)
    if mask != "none":
        diagonal = k.shape[2] - q.shape[2] if mask == "causal_bottom_right" else 0
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril(diagonal)
        scores = scores.masked_fill(~seen, float("-inf"))
    lse = torch.logsumexp(scores, -1)
    weights = torch.exp(scores - lse.masked_fill(torch.isneginf(lse), 0.0)[..., None])
    return weights @ values, lse


if __name__ == "__main__":
    raise SystemExit(main())
