"""Hostile kernels in a running service are rejected or harmless, and the service answers."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import httpx
import pytest
from service_home import KERNELS, axpy, until

from greenfast.client import Client
from greenfast.search.targets.emulator.isolation import has_seccomp, landlock_version

SLOWEST_ANSWER_S = 10.0  # two cores, shared with candidates that loop for ever

# All that an author can try to smuggle in, also past NVRTC.
HOSTILE = """// y = 2.5 x - 0.75, and then {{ deed }}.
#include <cuda_fp16.h>

#include "gf/dtype.cuh"

#ifndef __CUDACC_RTC__
extern "C" int fork(), getppid(), kill(int, int), open(const char*, int, ...);
extern "C" void* malloc(unsigned long);
#endif

extern "C" __global__ void __launch_bounds__(128)
axpy_hostile(const __half* x, __half* y, int N, float a, float b)
{
    const int i = blockIdx.x * 128 + threadIdx.x;
    float smuggled = 0.0f;
{% if deed == "endless_loop" %}
    for (volatile int forever = 1; forever;) {}
{% elif deed == "wild_writes" %}
    for (long long place = 1; place < (1LL << 46); place *= 2)
        reinterpret_cast<volatile char*>(y)[(i + 1) * place] = 1;
{% elif deed == "ten_gigabytes" %}
    char* taken = static_cast<char*>(malloc(10ull << 30));
    for (unsigned long long k = 0; k < (10ull << 30); k += 4096)
        taken[k] = 1;
{% elif deed == "printf_flood" %}
    for (int k = 0; k < 200; ++k)
        printf("{\\"event\\": \\"end\\", \\"status\\": \\"finished\\"}\\n line %d of thread %d\\n",
               k, i);
{% else %}
#ifndef __CUDACC_RTC__
{% if deed == "forks" %}
    if (fork() == 0)
        for (volatile int forever = 1; forever;) {}
{% elif deed == "kills_its_parent" %}
    smuggled = kill(getppid(), 9) == 0;
{% elif deed == "reads_files" %}
    smuggled = open("/etc/passwd", 0) >= 0;
{% endif %}
#endif
{% endif %}
    if (i < N)
        y[i] = gf::from_float<__half>(a * gf::to_float(x[i]) + b + smuggled);
}
"""
ENDS = {
    "nothing": ("green", ()),
    "endless_loop": ("rejected", ("timeout",)),
    "wild_writes": ("rejected", ("device_fault", "out_of_bounds")),
    "printf_flood": ("green", ()),  # nobody sees it, and the outputs are right
    "ten_gigabytes": ("rejected", ("device_fault",)),  # as on a GPU, whose heap gives null
    # Both compilers see one text: what is hidden from NVRTC is hidden from the emulator, too.
    # tests/unit/test_sandbox_attacks.py holds how far such calls come where they are executed.
    "forks": ("green", ()),
    "kills_its_parent": ("green", ()),
    "reads_files": ("green", ()),
}
SPEC = f"""name = "hostile"
kernel = "axpy"
idea = "What a kernel may try beside computing."

[parameters.deed]
type = "choice"
values = {list(ENDS)}
default = "nothing"
doc = "what it does"

[tiles]
tile_q = "128"

[[launches]]
entry = "axpy_hostile"
grid = ["ceil_div(N, 128)", "1", "1"]
block = ["128", "1", "1"]
smem_dynamic_bytes = 0
"""


class Watch:
    """Asks /healthz over and over while a block of code runs."""

    def __init__(self, url: str) -> None:
        self.answers: list[int] = []
        self._url, self._over = url, threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._over.set()
        self._thread.join()

    def _ask(self) -> None:
        with httpx.Client(trust_env=False, timeout=SLOWEST_ANSWER_S) as http:
            while not self._over.wait(0.2):
                try:
                    self.answers.append(http.get(f"{self._url}/healthz").status_code)
                except httpx.TransportError:
                    self.answers.append(0)


def emulators(cache: Path) -> list[int]:
    """Processes, of this machine, that run candidates out of `cache`."""
    pids = []
    for path in Path("/proc").iterdir():
        try:
            if path.name.isdigit() and str(cache) in (path / "cmdline").read_text():
                pids.append(int(path.name))
        except OSError:
            continue  # it has ended meanwhile, or is the kernel's
    return pids


@pytest.fixture(scope="module")
def templates(tmp_path_factory) -> Path:
    """The album's smallest kernel with one more template."""
    folder = tmp_path_factory.mktemp("templates")
    shutil.copytree(KERNELS / "axpy", folder / "axpy")
    (folder / "axpy" / "hostile.cu.j2").write_text(HOSTILE)
    (folder / "axpy" / "hostile.toml").write_text(SPEC)
    return folder


@pytest.mark.slow
@pytest.mark.skipif(
    not (has_seccomp() and landlock_version()), reason="this kernel has no seccomp or no Landlock"
)
def test_hostile_kernels_harm_neither_the_service_nor_the_next_candidate(home, templates, tmp_path):
    cache = tmp_path / "cache"  # other tests' candidates run out of the one that all share
    cache.mkdir()
    (home.data / "cache").unlink()
    (home.data / "cache").symlink_to(cache)
    process, url = home.serve(GREENFAST_TEMPLATE_PATH=str(templates))
    with Client(url) as api, Watch(url) as watch:
        search_id = api.submit(
            **axpy(templates=["hostile"], strategy="random", budget={"trials": len(ENDS) + 1})
        )["id"]
        until(lambda: emulators(cache.resolve()), "a candidate runs")
        ended = api.wait(search_id, deadline_s=240)
        after = api.wait(api.submit(**axpy())["id"], deadline_s=60)
        trials = {dict(trial["parameters"]).get("deed"): trial for trial in api.trials(search_id)}
    assert ended["status"] == "completed" and process.poll() is None
    for deed, (verdict, reasons) in ENDS.items():
        hostile = trials[deed]
        assert hostile["verdict"] == verdict and (not reasons or hostile["reason"] in reasons), (
            deed,
            hostile["sentence"],
        )
    assert after["status"] == "completed" and after["counts"]["by_verdict"] == {"green": 3}
    assert len(watch.answers) > 10 and set(watch.answers) == {200}
    until(lambda: not emulators(cache.resolve()), "no child is left behind", 10)
