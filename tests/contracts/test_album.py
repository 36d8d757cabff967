"""Every way to fail is caught by the gate and for the reason that the album names; right kernels pass."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import pytest

from search.candidate import Candidate, Origin, OriginKind, preset_candidate
from search.catalogue import REPOSITORY_TEMPLATES, Catalogue
from search.evaluate import Bench, evaluate
from search.gates import GateLimits
from search.targets import TargetSettings, open_target
from search.verdict import Green, Rejected, verdict_name

ALBUM = Path(__file__).parents[1] / "kernels"
ENTRIES = tomllib.loads((ALBUM / "album.toml").read_text())


@pytest.fixture(scope="module")
def emulator(artifacts, catalogue):
    target = open_target("emulator:h200", TargetSettings(artifacts, catalogue.include_dirs, 2))
    yield target
    target.close()


@pytest.fixture(scope="module")
def impatient(artifacts, catalogue):
    """For kernels that do not end; the others get their time, however busy the machine is."""
    return open_target("emulator:h200", TargetSettings(artifacts, catalogue.include_dirs, 2, run_deadline_s=3.0))


def _bench(kernel, workload, target, toolchain, include_dirs):
    chosen = kernel.workload(workload)
    return Bench(kernel, chosen.compile_time(kernel), (chosen,), target, toolchain, include_dirs, GateLimits(), 0)


def _expect(entry, verdict):
    if entry.get("verdict") == "green":
        assert isinstance(verdict, Green), verdict
        return
    assert isinstance(verdict, Rejected), f"{verdict_name(verdict)}: {verdict}"
    assert (verdict.stage, verdict.reason in entry["reasons"]) == (entry["stage"], True), verdict.sentence
    assert verdict.sentence and "\n" not in verdict.sentence
    if verdict.stage == "correctness":
        failed = [one for one in verdict.gates[1].evidence.checks if not one.passed]
        assert failed and all(one.sentence for one in failed)


def test_the_album_covers_every_defect_of_its_kernel(album):
    defects = album.kernel("axpy").template("broken").parameter("defect").values
    assert sorted(one["name"] for one in ENTRIES["defect"]) == sorted(defects)


@pytest.mark.parametrize("entry", ENTRIES["defect"], ids=lambda one: one["name"])
def test_a_defect_is_caught_by_the_gate_that_the_album_names(entry, album, emulator, impatient, toolchain):
    kernel = album.kernel("axpy")
    candidate = Candidate("axpy", "broken", (("defect", entry["name"]),), Origin(OriginKind.SEEDED))
    target = impatient if "timeout" in entry.get("reasons", ()) else emulator
    done = evaluate(candidate, _bench(kernel, "odd", target, toolchain, album.include_dirs), None)
    _expect(entry, done.verdict)


@pytest.mark.parametrize("entry", ENTRIES["patch"], ids=lambda one: one["name"])
def test_a_fault_planted_into_attention_is_caught(entry, tmp_path, emulator, toolchain):
    folder = tmp_path / "attention"
    shutil.copytree(REPOSITORY_TEMPLATES / "attention", folder)
    text = (folder / "wmma.cu.j2").read_text()
    assert text.count(entry["old"]) == 1, "the album's patch no longer fits the template"
    (folder / "wmma.cu.j2").write_text(text.replace(entry["old"], entry["new"]))
    made = Catalogue([REPOSITORY_TEMPLATES, tmp_path])
    kernel = made.kernel("attention")
    bench = _bench(kernel, entry.get("workload", "mission"), emulator, toolchain, made.include_dirs)
    template, preset = kernel.preset("wmma:flashcore_a")
    done = evaluate(preset_candidate(template, preset.name, bench.compiled), bench, None)
    _expect(entry, done.verdict)


@pytest.mark.parametrize("preset", ["wmma:flashcore_a", "wmma:flashcore_a64", "scalar:minimal", "scalar:vec"])
@pytest.mark.parametrize("workload", ["mission", "mission_bf16", "mission_causal", "mission_gqa"])
def test_shipped_presets_are_green(preset, workload, catalogue, emulator, toolchain):
    kernel = catalogue.kernel("attention")
    bench = _bench(kernel, workload, emulator, toolchain, catalogue.include_dirs)
    template, point = kernel.preset(preset)
    done = evaluate(preset_candidate(template, point.name, bench.compiled), bench, None)
    assert isinstance(done.verdict, Green), done.verdict
