"""A kernel that reads `blockDim` has one text for all its blocks, and each block is a candidate."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from contexts import plan_context
from test_run import ListSink

from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.loop.plan import SearchRequest, make_plan
from greenfast.search.loop.run import SearchRun
from greenfast.search.loop.sink import History
from greenfast.search.space.candidate import Candidate, Origin, OriginKind
from greenfast.search.space.launching import launch_of
from greenfast.search.targets import TargetSettings, open_target

ALBUM = Path(__file__).parents[1] / "kernels"
TEMPLATE = """
name = "right"
kernel = "axpy"
idea = "A text that does not name its block."
[parameters.threads]
type = "int"
values = [32, 64]
default = 32
[parameters.unused_here]
type = "int"
values = [1, 2]
default = 1
[locals]
elements = "2 * threads"
half = "elements // 2"
[tiles]
tile_q = "64"
[[launches]]
entry = "axpy_right"
grid = ["ceil_div(N, half)", "1", "1"]
block = ["threads", "1", "1"]
[presets.plain]
doc = "plain"
"""


@pytest.fixture
def kernels(tmp_path):
    """axpy whose text has neither of its parameters."""
    folder = tmp_path / "axpy"
    shutil.copytree(ALBUM / "axpy", folder)
    source = (folder / "right.cu.j2").read_text()
    source = source.replace("{{ threads }}", "1").replace("{{ per_thread }}", "1")
    source = source.replace("__launch_bounds__(threads)", "")
    source = source.replace("(blockIdx.x * per_thread + step) * threads", "blockIdx.x * blockDim.x")
    (folder / "right.cu.j2").write_text(source)
    (folder / "right.toml").write_text(TEMPLATE)
    (folder / "broken.toml").unlink()
    (folder / "broken.cu.j2").unlink()
    return Catalogue([REPOSITORY_TEMPLATES, tmp_path])


def candidate(**values):
    return Candidate("axpy", "right", tuple(values.items()), Origin(OriginKind.SAMPLED))


def test_what_a_launch_depends_on_is_found_through_locals(kernels):
    kernel = kernels.kernel("axpy")
    first, same, other = (
        launch_of(kernel, candidate(threads=threads, unused_here=unused))
        for threads, unused in ((32, 1), (32, 2), (64, 1))
    )
    assert first == same != other


def test_a_scalar_of_the_template_is_part_of_a_launch(kernels):
    folder = kernels.kernel("axpy").folder
    scalar = '[[scalars]]\nname = "given"\ndtype = "int32"\nvalue = "unused_here"\n'
    (folder / "right.toml").write_text(TEMPLATE + scalar)
    kernel = Catalogue([REPOSITORY_TEMPLATES, folder.parent]).kernel("axpy")
    first, other = (launch_of(kernel, candidate(threads=32, unused_here=each)) for each in (1, 2))
    assert first != other


def test_candidates_with_one_text_and_different_blocks_are_all_tried(kernels, artifacts, toolchain):
    target = open_target(
        "emulator:h200", TargetSettings(artifacts, kernels.include_dirs, 1, run_deadline_s=8.0)
    )
    request = SearchRequest("axpy", workloads=("odd",), strategy="random", trials=9, seed=1)
    sink = ListSink()
    plan = make_plan(request, kernels)
    SearchRun(plan, plan_context(kernels, plan, target, toolchain), sink, History()).run()
    assert len(sink.sources) == 1
    assert sorted(dict(trial.candidate.parameters)["threads"] for trial in sink.trials) == [32, 64]
