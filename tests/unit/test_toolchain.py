"""Real NVRTC in real children: figures, refusals, limits, the cache."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from greenfast.search.children import Child, ChildDied, ChildTimeout, Limits
from greenfast.search.digest import text_digest
from greenfast.search.errors import Fault
from greenfast.search.kernels.template_text import Line
from greenfast.search.render import RenderedSource
from greenfast.search.toolchain import CompileFailed, Cubin, Toolchain
from greenfast.search.toolchain.cache import ArtifactCache
from greenfast.search.toolchain.nvrtc import compile_shares
from greenfast.search.toolchain.ptxas import parse_log
from greenfast.search.toolchain.toolkit import COMPONENTS
from greenfast.search.verdict import Reason

KERNEL = """#include <cuda_fp16.h>
extern "C" __global__ void twice(const __half* x, __half* y) {   // [64] -> [64]
    __shared__ float tile[64];
    tile[threadIdx.x] = 2.0f * __half2float(x[threadIdx.x]);
    __syncthreads();
    y[threadIdx.x] = __float2half(tile[63 - threadIdx.x]);
}
"""


def _source(text: str) -> RenderedSource:
    lines = tuple(
        Line("album/kernel.cu.j2", number) for number in range(1, len(text.splitlines()) + 1)
    )
    return RenderedSource(text, text_digest(text), lines, text, ("twice",), False)


def test_a_kernel_compiles_with_the_assemblers_figures(toolchain):
    cubin = toolchain.compile(_source(KERNEL), "sm_90")
    assert isinstance(cubin, Cubin)
    assert cubin.code[:4] == b"\x7fELF"
    (entry,) = cubin.entries
    assert entry.entry == "twice" and entry.smem_static_bytes == 256
    assert 4 <= entry.registers <= 32 and entry.spill_bytes == 0


def test_the_second_compile_comes_from_the_cache_and_a_damaged_entry_does_not(
    artifacts, toolchain, tmp_path
):
    own_toolchain = Toolchain(tmp_path, 1)
    first = own_toolchain.compile(_source(KERNEL), "sm_89")
    assert own_toolchain.compile(_source(KERNEL), "sm_89") == first
    (entry,) = [path for path in (tmp_path / "cubin").rglob("*") if path.is_file()]
    entry.write_bytes(entry.read_bytes()[:-1] + b"x")
    again = own_toolchain.compile(_source(KERNEL), "sm_89")
    assert again.code == first.code and again.compile_s != first.compile_s
    own_toolchain.close()


def test_another_architecture_or_source_is_another_entry(toolchain):
    cubins = [toolchain.compile(_source(KERNEL), arch) for arch in ("sm_80", "sm_89", "sm_90")]
    assert len({cubin.code for cubin in cubins}) == 3


def test_a_library_that_is_not_its_packages_is_a_fault_of_ours(tmp_path):
    mixed = Toolchain(tmp_path, 1)
    mixed.__dict__["identity"] = tuple(
        (name, "13.0.88" if name == "nvidia-cuda-nvrtc" else version)
        for name, version in mixed.identity
    )
    wrong = r"nvidia-cuda-nvrtc is 13\.0\.88, but its library is"
    with pytest.raises(Fault, match=wrong) as caught:
        mixed.compile(_source(KERNEL), "sm_90")
    assert caught.value.code == "toolchain_mixed"
    mixed.close()


def test_the_layout_says_where_the_headers_of_this_machine_are(toolchain):
    assert dict(toolchain.identity).keys() == {*COMPONENTS, "cuda-core", "options"}
    for header in ("cuda_fp16.h", "crt/host_defines.h", "cuda/std/array"):
        assert any((Path(folder) / header).is_file() for folder in toolchain.include_dirs), header


def test_a_refusal_points_into_the_template(toolchain):
    failed = toolchain.compile(_source(KERNEL.replace("tile[63", "tyle[63")), "sm_90")
    assert isinstance(failed, CompileFailed) and failed.reason is Reason.COMPILE_ERROR
    assert failed.sentence.startswith(
        'album/kernel.cu.j2(6): error: identifier "tyle" is undefined'
    )


_SUMS = ", ".join(f"%{number}" for number in range(64))
_OUTPUTS = ", ".join(f'"+f"(d[{number}])' for number in range(64))
TOO_FEW_REGISTERS = f"""
extern "C" __global__ void __launch_bounds__(128, 16) twice(float* y) {{
    float d[64];
    for (int i = 0; i < 64; i++) d[i] = y[i];
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
        "{{{_SUMS}}}, %64, %64, 1, 1, 1, 0, 0;" : {_OUTPUTS} : "l"(0ull));
    for (int i = 0; i < 64; i++) y[i] = d[i];
}}
"""


def test_the_assemblers_own_reason_is_named_and_not_its_last_line(toolchain):
    refused = toolchain.compile(replace(_source(TOO_FEW_REGISTERS), arch_specific=True), "sm_90a")
    assert isinstance(refused, CompileFailed)
    assert "Insufficient registers (32)" in refused.sentence


def test_the_messages_of_two_stages_hold_no_nul(toolchain):
    """NVRTC ends those of each stage with NUL."""
    text = '__constant__ char c[1 << 20];\nextern "C" __global__ void k(char* y) { *y = c[*y]; }\n'
    failed = toolchain.compile(_source(text), "sm_90")
    assert isinstance(failed, CompileFailed)
    assert failed.sentence.startswith("ptxas error") and "\0" not in failed.log


def test_a_message_of_the_text_is_no_lack_of_memory(toolchain):
    failed = toolchain.compile(_source("#error catastrophic error: out of memory\n"), "sm_90")
    assert isinstance(failed, CompileFailed) and failed.reason is Reason.COMPILE_ERROR


LADDER = "".join(f"#define M{n} {f'M{n - 1} ' * 10}\n" for n in range(1, 7))


@pytest.mark.slow
def test_a_lack_of_memory_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("greenfast.search.toolchain.nvrtc.COMPILE_MEMORY_BYTES", 900 << 20)
    toolchain = Toolchain(tmp_path, 1)
    text = f"#define M0 ;;;;;;;;;;\n{LADDER}__device__ void f() {{ M6 }}\n"
    failed = toolchain.compile(_source(text), "sm_90")
    toolchain.close()
    assert isinstance(failed, CompileFailed) and failed.reason is Reason.COMPILE_MEMORY
    assert failed.sentence == "NVRTC needed more than 900 MiB"


GIB = 2**30


@pytest.mark.parametrize(
    ("children", "memory_gib", "count", "share_gib"),
    [
        (1, 64, 1, 8),
        (8, 64, 8, 8),
        (16, 64, 16, 4),
        (64, 128, 64, 2),
        (64, 32, 32, 1),
        (8, 0.5, 1, 1),
    ],
)
def test_compilers_share_the_memory_of_the_machine(children, memory_gib, count, share_gib):
    found = compile_shares(children, int(memory_gib * GIB))
    assert found == (count, share_gib * GIB)


def test_a_compile_that_needs_more_than_its_share_runs_again_alone(tmp_path, monkeypatch):
    module = "greenfast.search.toolchain.nvrtc"
    monkeypatch.setattr(f"{module}.LEAST_SHARE_BYTES", 200 << 20)  # 90 MiB less than it takes
    monkeypatch.setattr(f"{module}.usable_memory_bytes", lambda: 900 << 20)
    toolchain = Toolchain(tmp_path, 4)
    limits = []
    started = toolchain._new_children
    monkeypatch.setattr(
        toolchain,
        "_new_children",
        lambda count, size: limits.append((count, size >> 20)) or started(count, size),
    )
    text = f"#define M0 ;;;;;;;;;;\n{LADDER}__device__ void f() {{ M5 }}\n{KERNEL}"
    assert isinstance(toolchain.compile(_source(text), "sm_90"), Cubin)
    assert limits == [(4, 225), (1, 900)]
    toolchain.close()


@pytest.mark.slow
def test_a_log_flood_is_capped(toolchain):
    flood = "\n".join(f"#warning {'x' * 100}" for _ in range(20000)) + "\n#error at the end\n"
    failed = toolchain.compile(_source(flood), "sm_90")
    assert isinstance(failed, CompileFailed)
    assert len(failed.log) < 70_000 and "left out" in failed.log


def test_a_compile_without_end_is_stopped_at_its_deadline(tmp_path):
    bomb = (
        "template<int N> struct B { static constexpr int v = B<N-1>::v + B<N-2>::v; };\n"
        "#define A(x) x x x x x x x x\n#define B2(x) A(A(A(A(x))))\n"
        "int f() { return 0 B2(B2(+1)); }\n"
    )
    toolchain = Toolchain(tmp_path, 1, deadline_s=0.5)
    failed = toolchain.compile(_source(bomb), "sm_90")
    assert isinstance(failed, CompileFailed) and failed.reason is Reason.COMPILE_TIMEOUT
    assert isinstance(toolchain.compile(_source(KERNEL), "sm_90"), (Cubin, CompileFailed))
    toolchain.close()


@pytest.mark.slow
def test_a_crash_of_the_compiler_is_the_candidates_and_leaves_the_pool_whole(tmp_path):
    toolchain = Toolchain(tmp_path, 1)
    crash = "int f() { return " + "-(" * 3_000_000 + "1" + ")" * 3_000_000 + "; }\n"
    failed = toolchain.compile(_source(crash), "sm_90")
    assert isinstance(failed, CompileFailed)
    assert failed.reason in (Reason.COMPILE_CRASH, Reason.COMPILE_MEMORY, Reason.COMPILE_ERROR)
    assert isinstance(toolchain.compile(_source(KERNEL), "sm_90"), Cubin)
    toolchain.close()


def test_a_child_that_died_while_it_was_idle_is_replaced(tmp_path):
    toolchain = Toolchain(tmp_path, 1)
    toolchain.compile(_source(KERNEL), "sm_90")
    (child,) = toolchain.children.all
    os.kill(child.process.pid, signal.SIGKILL)
    child.process.wait()
    assert isinstance(toolchain.compile(_source(KERNEL + "\n"), "sm_90"), Cubin)
    toolchain.close()


def test_after_an_interrupt_the_next_compile_finds_a_new_child(tmp_path):
    toolchain = Toolchain(tmp_path, 1)
    toolchain.compile(_source(KERNEL), "sm_90")
    toolchain.interrupt()
    assert isinstance(toolchain.compile(_source(KERNEL + "\n"), "sm_90"), Cubin)
    toolchain.close()


def test_interrupting_ends_a_compile_in_progress(tmp_path):
    toolchain = Toolchain(tmp_path, 1)
    slow = (
        "#define A(x) x x x x x x x x\n#define B(x) A(A(A(A(x))))\nint f() { return 0 B(B(+1)); }\n"
    )
    faults: list[Fault] = []

    def compile_slowly() -> None:
        try:
            toolchain.compile(_source(slow), "sm_90")
        except Fault as fault:
            faults.append(fault)

    thread = threading.Thread(target=compile_slowly)
    thread.start()
    time.sleep(1.0)
    toolchain.interrupt()
    thread.join(10)
    assert not thread.is_alive() and [fault.code for fault in faults] == ["child_lost"]
    toolchain.close()


def test_children_do_not_inherit_secrets(monkeypatch, toolchain):
    monkeypatch.setenv("GREENFAST_TOKEN", "canary-4711")
    child = Child("greenfast.search.toolchain.nvrtc_child", Limits())
    end, environment = time.monotonic() + 60, ""
    while not environment and time.monotonic() < end:  # empty until the child has become Python
        environment = Path(f"/proc/{child.process.pid}/environ").read_text()
    child.close()
    assert "canary" not in environment and "PATH=" in environment


def test_a_child_that_exits_says_how(tmp_path):
    child = Child("json.tool", Limits())  # a module that does not speak the protocol
    with pytest.raises((ChildDied, ChildTimeout)):
        child.call({"anything": 1}, 5.0)


def test_the_cache_refuses_an_unwritable_folder_with_a_mend(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Fault) as fault:
        ArtifactCache(tmp_path / "file", "cubin").put("ab" * 32, {}, b"x")
    assert fault.value.code == "cache_unwritable" and "GREENFAST_DATA" in fault.value.mend


def test_logs_of_nvcc_and_nvrtc_are_read_alike():
    log = """ptxas info    : Compiling entry function 'a' for 'sm_90'
ptxas         .     64 bytes stack frame, 16 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 64 bytes cumulative stack size, 768 bytes smem
ptxas info    : Compiling entry function 'b' for 'sm_90'
ptxas info    : Function properties for b
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 22 registers, 400 bytes cmem[0]
"""
    a, b = parse_log(log)
    assert (a.entry, a.registers, a.spill_bytes, a.stack_bytes, a.smem_static_bytes) == (
        "a",
        255,
        40,
        64,
        768,
    )
    assert (b.entry, b.registers, b.spill_bytes, b.stack_bytes, b.smem_static_bytes) == (
        "b",
        22,
        0,
        0,
        0,
    )
