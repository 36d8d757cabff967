"""A submitted source becomes champion, and the next one is timed against it.

The GPU is a stand-in: it computes in NumPy and draws times from a law of the text. The store, the
gates, the compiler, the emulator's checks, confirmation and every command are the real ones.
"""

from __future__ import annotations

import re
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from service_home import one_sentence

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))
from confirmed_searches import ScatteringGpu

from greenfast.app import wiring
from greenfast.app.cli.judge_here import judged_here
from greenfast.app.service.worker import Stop
from greenfast.app.settings import Settings
from greenfast.app.views import writers
from greenfast.app.views.submitting import JudgeRequest
from greenfast.app.wiring import Services
from greenfast.search.devices.facts import device
from greenfast.search.errors import UsageError
from greenfast.search.loop import target_space
from greenfast.search.loop.submitted import Submission

LAUNCH = 'grid = ["ceil_div(N, 128)"]\nblock = [128]\n[tiles]\ntile_q = "128"\n'
SOURCE = """#include <cuda_fp16.h>
// takes %s us
extern "C" __global__ void mine(const __half* x, __half* y, int N, float a, float b)
{
    int i = blockIdx.x * 128 + threadIdx.x;
    if (i < N) y[i] = __float2half(a * __half2float(x[i]) + b);
}
"""


def microseconds(text: str) -> float:
    said = re.search(r"// takes ([\d.]+) us", text)
    return float(said[1]) if said else 10.0


class OnStandIn(Services):
    """Services whose cuda:0 is a stand-in, and which compare with no peers."""

    gpu = ScatteringGpu(microseconds)

    def target(self, name, run_deadline_s=None, include_dirs=None):
        return self.gpu if name == "cuda:0" else super().target(name, run_deadline_s, include_dirs)

    def context(self, plan, catalogue=None):
        return replace(super().context(plan, catalogue), compare_peers=None)

    def _opened(self):
        return [part for part in super()._opened() if part is not self.gpu]


@pytest.fixture
def services(home, monkeypatch):
    for name, value in home.environment.items():
        monkeypatch.setenv(name, value)
    for module in (target_space, wiring, writers):
        monkeypatch.setattr(module, "target_device", lambda target: device("h200"))
    services = OnStandIn(Settings.from_environment())
    yield services
    services.close()


def judged(services, time_us, **request):
    submission = Submission("axpy", SOURCE % time_us, LAUNCH, "mine", model="scripted")
    report = judged_here(
        services, JudgeRequest(submission, ("line",), "cuda:0", **request), Stop(1.0)
    )
    assert report is not None
    return report


@pytest.mark.slow  # the emulator checks four sources
def test_a_submission_is_confirmed_promoted_and_is_the_next_ones_baseline(services, home, tmp_path):
    first = judged(services, 8.0)
    assert first["verdict"] == "accepted", first
    confirmation = services.store.confirmation(first["id"])
    assert confirmation.confirmation.confirmed, confirmation.confirmation.sentence
    promoted = home.run("promote", first["id"])
    assert promoted.code == 0, promoted.err
    (champion,) = home.run("champions", "axpy", "--json").json
    assert champion["trial"]["search_id"] == first["id"]
    assert champion["trial"]["template"].startswith("submitted_")

    slower = judged(services, 9.0)
    assert slower["baseline"] == f"champion {first['id']}/{first['trial']}"
    assert (slower["verdict"], slower["reason"]) == ("rejected", "slower")
    assert services.store.confirmation(slower["id"]) is None
    refused = home.run("promote", slower["id"], str(slower["trial"]))
    assert refused.code == 2 and "not accepted" in one_sentence(refused)

    faster = judged(services, 7.0)
    assert faster["verdict"] == "accepted" and faster["ratio_to_baseline"] < 0.9
    assert home.run("promote", faster["id"]).code == 0
    known = home.run("champions", "axpy", "--json", "--replaced").json
    assert {each["trial"]["search_id"] for each in known} == {first["id"], faster["id"]}
    best = writers.best_source(services, "axpy", "line", "cuda:0")
    assert best["digest"] == faster["source_digest"]

    names = [f"{each['id']}/{each['trial']}" for each in (first, faster)]
    compared = home.run("compare", *names, "--json")
    assert compared.code == 0, compared.err
    assert "takes 7.0 us" in compared.out and "takes 8.0 us" in compared.out
    saved = home.run("bundle", faster["id"], "-o", str(tmp_path / "b.zip"))
    assert saved.code == 0, saved.err
    with zipfile.ZipFile(tmp_path / "b.zip") as bundle:
        sources = [bundle.read(name) for name in bundle.namelist() if name.endswith(".cu")]
    assert any(b"takes 7.0 us" in source for source in sources)


@pytest.mark.slow
def test_a_submission_that_is_wrong_on_a_fresh_seed_is_no_champion(services, home):
    services.gpu = ScatteringGpu(microseconds)
    services.gpu.wrong_when = lambda program: (
        services.gpu.processes > 0 and "takes 8.5 us" in program.text
    )
    report = judged(services, 8.5)
    confirmation = services.store.confirmation(report["id"])
    assert confirmation is None or not confirmation.confirmation.confirmed
    refused = home.run("promote", report["id"], str(report["trial"]))
    assert refused.code == 2, refused.out
    with pytest.raises(UsageError):
        services.store.promote(report["id"], report["trial"])
