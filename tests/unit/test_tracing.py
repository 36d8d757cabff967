"""Tracing a PyTorch program: what is recorded, and that the program does not notice."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from greenfast.app.cli.main import run
from greenfast.app.cli.trace import TRACER, run_to_its_end, traced_command
from greenfast.search.errors import UsageError
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.kernels.workload_files import read_workloads
from greenfast.traced import trace_result, write_workloads

DIMS = {"B": 2, "H": 8, "H_kv": 8, "S_q": 64, "S_kv": 64, "D": 64}
BF16 = {"dtype": "bf16", "mask": "none"}
STRIDES = {"q": [32768, 4096, 64, 1]}


def call(count=1, device_us=None, kernel="attention", dims=DIMS, options=BF16, reason=""):
    return {
        "kernel": kernel,
        "dims": dims,
        "options": options,
        "strides": STRIDES,
        "reason": reason,
        "count": count,
        "host_s": 0.001,
        "device_us": device_us,
    }


@pytest.fixture(scope="module")
def catalogue():
    return Catalogue.from_environment()


@pytest.mark.parametrize("ending", [".toml", ".json", ".csv"])
def test_a_file_holds_the_shapes_with_their_share_of_time(catalogue, tmp_path, ending):
    long = {**DIMS, "S_q": 4096, "S_kv": 4096}
    calls = {
        "lost": 0,
        "calls": [
            call(9, 10.0),
            call(1, 30.0, dims=long),
            call(2, 60.0, kernel="rmsnorm", dims={"M": 7, "N": 64}, options={"dtype": "bf16"}),
            call(5, kernel="attention", dims={}, options={}, reason="an attn_mask"),
            call(4, 1.0, dims={**DIMS, "D": 40}),
            call(3, 1.0, kernel="nowhere", dims={"M": 1, "N": 1, "K": 1}),
        ],
    }
    result, paths = write_workloads(calls, tmp_path / f"mine{ending}", catalogue)
    assert [path.name for path in paths] == [f"mine.rmsnorm{ending}", f"mine.attention{ending}"]
    (tmp_path / "plain").touch()
    assert paths[0].stat().st_mode == (tmp_path / "plain").stat().st_mode
    rows = read_workloads(paths[1], catalogue.kernel("attention"))
    assert [(row.weight, dict(row.workload.dims)["S_q"]) for row in rows] == [
        (75.0, 4096),
        (25.0, 64),
    ]
    reasons = {row.reason: row.count for row in result.not_covered}
    assert reasons == {
        "an attn_mask": 5,
        f"D=40 is not one of {', '.join(map(str, range(32, 257, 16)))}": 4,
        "there is no kernel nowhere here": 3,
    }


def test_without_device_times_the_weights_are_counts(catalogue):
    calls = {"lost": 0, "calls": [call(3, 10.0), call(4), call(2, dims={**DIMS, "B": 1})]}
    result = trace_result(calls, catalogue)
    assert not result.by_time
    assert [(row.count, result.weight(row)) for row in result.workloads] == [(7, 7.0), (2, 2.0)]


@pytest.mark.parametrize(
    ("words", "before", "after"),
    [
        (["m.py", "5"], ["python3"], ["path", "m.py", "5"]),
        (["PY", "-u", "-X", "dev", "m.py"], ["PY", "-u", "-X", "dev"], ["path", "m.py"]),
        (["PY", "-m", "pkg.run", "-m", "x"], ["PY"], ["-m", "pkg.run", "-m", "x"]),
        (["PY", "-mpkg"], ["PY"], ["-m", "pkg"]),
        (["PY", "-c", "print(1)", "a"], ["PY"], ["-c", "print(1)", "a"]),
    ],
)
def test_the_tracer_stands_in_front_of_the_program(tmp_path, monkeypatch, words, before, after):
    (tmp_path / "m.py").touch()
    monkeypatch.chdir(tmp_path)

    def real(word):
        return sys.executable if word == "PY" else word

    command = traced_command([real(word) for word in words], tmp_path / "calls")
    expected = [*map(real, before), str(TRACER), str(tmp_path / "calls"), *after]
    assert command == expected


@pytest.mark.parametrize(
    "words",
    [
        ["ls"],
        ["python-is-not-here"],
        [sys.executable],
        [sys.executable, "-m"],
        [sys.executable, "not_here.py"],
        ["./x"],
    ],
)
def test_what_is_no_python_program_is_refused(tmp_path, words):
    with pytest.raises(UsageError) as refused:
        traced_command(words, tmp_path / "calls")
    assert refused.value.code == "bad_program"


def test_a_file_of_another_ending_is_refused_before_the_program_runs(capsys, tmp_path):
    marker = tmp_path / "ran"
    code = run(["trace", "-o", "x.yaml", "--", sys.executable, "-c", f"open({str(marker)!r}, 'w')"])
    assert code == 2 and not marker.exists()
    assert ".toml, .json, .csv" in capsys.readouterr().err


LASTING = """
import os, pathlib, signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
try:
    os.kill(os.getppid(), signal.SIGINT)  # as a terminal does to both
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
finally:
    time.sleep(0.6)
    pathlib.Path("written").touch()
"""


def test_a_program_writes_its_calls_after_ctrl_c(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = run_to_its_end([sys.executable, "-c", LASTING], dict(os.environ), None)
    assert code == -signal.SIGINT and Path("written").exists()


PROGRAM = """
import sys, threading, torch, torch.nn.functional as F
from torch.nn.functional import scaled_dot_product_attention as sdpa

assert __name__ == "__main__" and sys.argv == ["model.py", "7"], sys.argv
before = torch.manual_seed(0) and torch.randn(2, 8, 64, 64, dtype=torch.bfloat16)
q = before.clone()
with torch.no_grad():
    first = sdpa(q, q, q)
    assert torch.equal(first, F.scaled_dot_product_attention(q, q, q)) and torch.equal(q, before)
    F.scaled_dot_product_attention(query=q, key=q, value=q, is_causal=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        sdpa(q.float(), q.float(), q.float())
    t = q.transpose(1, 2).contiguous().transpose(1, 2)
    sdpa(t, t, t)
    sdpa(q, q[:, :2], q[:, :2], enable_gqa=True)
    sdpa(q, q, q, dropout_p=0.5)
    biases = torch.zeros(64, 64, dtype=torch.bfloat16)
    causal = torch.ones(64, 64, dtype=torch.bool).tril()
    sdpa(q, q, q, biases)
    sdpa(q, q, q, biases + 0.5)
    sdpa(q, q, q, attn_mask=causal)
    sdpa(q, q, q, attn_mask=biases.masked_fill(~causal, float("-inf")).expand(2, 1, 64, 64))
    sdpa(q[:, :, :2], q, q, attn_mask=causal[-2:])
    sdpa(q, q, q, attn_mask=causal.flip(0))
    sdpa(q, q, q, scale=2.0)
    sdpa(q, q, q, scale=-2.0)
    sdpa(q.float(), q.float(), q.float())
    sdpa(q.mT, q.mT, q.mT)
    torch.nn.RMSNorm(512, eps=1e-6, dtype=torch.bfloat16)(torch.randn(4, 512, dtype=torch.bfloat16))
    torch.nn.RMSNorm(512, dtype=torch.bfloat16)(torch.randn(2, 2, 512, dtype=torch.bfloat16))
    torch.nn.RMSNorm(512, eps=1e-5)(torch.randn(4, 512))
    torch.nn.Linear(8, 16, dtype=torch.bfloat16)(torch.zeros(5, 8, dtype=torch.bfloat16))
    layer = torch.nn.MultiheadAttention(64, 1, batch_first=True, dtype=torch.bfloat16).train()
    layer(q[0], q[0], q[0], need_weights=False)
    layer(q[0], q[0], q[0])
    q[0, 0] @ q[0, 1]
    torch.matmul(q, other=q)
    torch.mm(q[0, 0], mat2=q[0, 1])
    torch.einsum("bhsd,bhtd->bhst", q, q).softmax(-1)
    thread = threading.Thread(target=lambda: F.scaled_dot_product_attention(q, q, q))
    thread.start(); thread.join()
    @torch.jit.script
    def scripted(x: torch.Tensor):
        return F.linear(F.scaled_dot_product_attention(x, x, x), x[0, 0])
    assert scripted(q).shape == (2, 8, 64, 64)
    compiled = torch.compile(lambda x: F.scaled_dot_product_attention(x, x, x), backend="eager")
    assert torch.equal(compiled(q), first)
    graph = torch.fx.symbolic_trace(torch.nn.Linear(8, 16))
    targets = [node.target for node in graph.graph.nodes if node.op == "call_function"]
    assert targets == [torch._C._nn.linear], targets
    try:
        sdpa(q, q[:, :3], q)
    except RuntimeError:
        print("raised as without a tracer")
q.requires_grad_(True)
sdpa(q, q, q).sum().backward()
assert q.grad is not None
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("traced")
    (folder / "model.py").write_text(PROGRAM)
    words = ["trace", "-o", "out.toml", "--json", "--", sys.executable, "model.py", "7"]
    return folder, subprocess.run(
        [sys.executable, "-m", "greenfast", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_real_program_runs_as_without_a_tracer(traced):
    _, ended = traced
    assert ended.returncode == 1 and "ended with 7" in ended.stderr, ended.stderr
    assert "raised as without a tracer\n" in ended.stderr


def test_its_calls_are_counted_by_shape_and_the_rest_by_reason(traced, catalogue):
    folder, ended = traced
    seen = json.loads(ended.stdout)
    counts = {
        (row["kernel"], *row["dims"].values(), *row["options"].values()): row["count"]
        for row in seen["workloads"]
    }
    assert counts == {
        ("attention", 2, 8, 8, 64, 64, 64, "bf16", "none"): 7,  # a thread's call is among them
        ("attention", 2, 8, 8, 64, 64, 64, "bf16", "causal_top_left"): 1,
        ("attention", 2, 8, 2, 64, 64, 64, "bf16", "none"): 1,
        ("attention", 8, 1, 1, 64, 64, 64, "bf16", "none"): 1,  # nn.MultiheadAttention's
        ("rmsnorm", 4, 512, "bf16"): 2,  # with an eps and with PyTorch's default
        ("gemm", 5, 16, 8, "bf16", "yes"): 1,
        ("gemm", 512, 64, 64, "bf16", "yes"): 8,  # nn.MultiheadAttention's projections
    }
    reasons = {row["reason"]: row["count"] for row in seen["not_covered"]}
    known = {
        "dropout_p=0.5": 1,
        "an attn_mask": 1,
        "an attn_mask of biases": 1,
        "an attn_mask that hides nothing: pass none": 1,
        "an attn_mask that is causal: pass is_causal=True": 2,
        'an attn_mask that is mask="causal_bottom_right" of greenfast.attention': 1,
        "scale=-2.0": 1,
        "gradients are needed: run it under torch.no_grad()": 1,
        "the last dim of q has stride 64": 1,
        "torch.mm; gemm multiplies as F.linear does": 1,
        "torch.einsum; gemm multiplies as F.linear does": 1,
    }
    assert known.items() <= reasons.items()
    rest = " ".join(reasons.keys() - known.keys())
    assert "float32" in rest and "need_weights=True" in rest and "torch.matmul;" in rest
    assert "a batch of products by torch.matmul" in rest and seen["lost"] == 0
    assert read_workloads(folder / "out.attention.toml", catalogue.kernel("attention"))


def test_functions_that_were_compiled_before_are_recorded():
    torch = pytest.importorskip("torch")
    import greenfast

    q = torch.zeros(1, 1, 8, 32, dtype=torch.float16)

    @torch.compile(backend="aot_eager")
    def attend(q):
        return torch.nn.functional.scaled_dot_product_attention(q, q, q)

    with torch.no_grad():
        attend(q)
        with greenfast.trace() as traced:
            attend(q)
    assert [calls.count for calls in traced.calls.values()] == [1]


def test_traces_nest_and_restore_what_they_replaced():
    torch = pytest.importorskip("torch")
    import greenfast

    functional = torch.nn.functional
    before = functional.scaled_dot_product_attention
    q = torch.zeros(1, 1, 8, 32, dtype=torch.float16)
    with torch.no_grad(), greenfast.trace() as outer:
        functional.scaled_dot_product_attention(q, q, q)
        with greenfast.trace() as inner:
            before(q, q, q)
            functional.scaled_dot_product_attention(q, q, q)
        with contextlib.suppress(ZeroDivisionError), greenfast.trace():
            raise ZeroDivisionError
    assert functional.scaled_dot_product_attention is before
    assert [calls.count for calls in outer.calls.values()] == [3]
    assert [calls.count for calls in inner.calls.values()] == [2]
