"""`greenfast check` and `greenfast album`: exit codes, lines, and the three forms of a report."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from service_home import Ended, one_sentence
from slow_cases import quick_first

from greenfast.app.cli.main import run
from greenfast.app.cli.sarif import RULES
from greenfast.search.verdict import FINDING_REASONS

SUMS = """// Each block adds its 256 values up.
#include "scaled.cuh"
extern "C" __global__ void block_sums(const float* x, float* partial, int n) {
    __shared__ float tile[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i < n ? scaled(x[i]) : 0.0f;
    __syncthreads();
    for (int step = 128; step > 0; step /= 2) {
        if (threadIdx.x < step) tile[threadIdx.x] += tile[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) partial[blockIdx.x] = tile[0];
}
extern "C" __global__ void total(const float* partial, float* y, int blocks) {
    float sum = 0.0f;
    for (int i = 0; i < blocks; ++i) sum += partial[i];
    if (threadIdx.x == 0) y[0] = sum;
}
"""
LAUNCH = """
[[buffers]]
name = "x"
role = "input"
dtype = "float32"
elements = 1000
fill = "ones"
[[buffers]]
name = "partial"
role = "workspace"
dtype = "float32"
elements = 4
[[buffers]]
name = "y"
role = "output"
dtype = "float32"
elements = 1
[[launches]]
entry = "block_sums"
grid = 4
block = 256
arguments = ["x", "partial", { int32 = 1000 }]
[[launches]]
entry = "total"
grid = 1
block = 32
arguments = ["partial", "y", { int32 = 4 }]
[[expect]]
output = "y"
file = "y.npy"
absolute_tolerance = 1e-3
"""


@pytest.fixture
def own(home):
    """A person's kernel beside its launch file: `own(change)` writes it with one text changed."""

    def write(
        old: str = "", new: str = "", *, launch: tuple[str, str] = ("", "")
    ) -> tuple[str, ...]:
        assert old in SUMS and launch[0] in LAUNCH
        (home.data / "sums.cu").write_text(SUMS.replace(old, new, 1) if old else SUMS)
        (home.data / "scaled.cuh").write_text(
            "__device__ float scaled(float x) { return 2.0f * x; }\n"
        )
        (home.data / "launch.toml").write_text(LAUNCH.replace(*launch) if launch[0] else LAUNCH)
        np.save(home.data / "y.npy", np.array([2000.0]))
        return "check", "sums.cu", "--launch", "launch.toml"

    return write


def test_a_right_kernel_of_a_person_is_clean(home, own):
    ended = home.run(*own(), "--json")
    report = ended.json
    assert ended.code == 0 and report["clean"] and report["findings"] == [], ended.err
    assert [run["order"] for run in report["runs"]] == ["forward", "reverse", "seeded:1"]
    assert {(cost["file"], cost["line"]) for cost in report["costs"]} >= {
        ("sums.cu", 9),
        ("sums.cu", 6),
    }


def test_a_missing_barrier_is_shown_with_both_its_lines(home, own):
    arguments = own("        __syncthreads();\n", "")
    ended = home.run(*arguments)
    assert ended.code == 1 and "race" in ended.out and "sums.cu:9" in ended.out and ended.err == ""
    assert (
        ">     9 |         if (threadIdx.x < step) tile[threadIdx.x] += tile[threadIdx.x + step];"
        in ended.out
    )
    race = next(
        finding
        for finding in home.run(*arguments, "--json").json["findings"]
        if finding["kind"] == "race"
    )
    assert (
        race["where"] == race["other_where"] == ["sums.cu", 9]
        and race["thread"] != race["other_thread"]
    )


def test_what_is_expected_is_compared(home, own):
    ended = home.run(*own(launch=('fill = "ones"', 'fill = "zeros"')), "--json")
    (finding,) = ended.json["findings"]
    assert (
        ended.code == 1
        and finding["kind"] == "wrong_values"
        and "y[0] is 0, not 2000" in finding["sentence"]
    )


@pytest.mark.slow
def test_an_access_out_of_bounds_names_the_owner(home, own):
    (finding, *_) = home.run(
        *own("i < n ? scaled(x[i])", "i < n + 24 ? scaled(x[i])"), "--json"
    ).json["findings"]
    assert finding["kind"] == "out_of_bounds" and finding["where"] == ["sums.cu", 6]
    assert "'x'" in finding["sentence"] or "x" in finding["memory"]


def test_sarif_has_a_rule_for_each_kind_and_the_other_line_as_related(home, own):
    ended = home.run(*own("        __syncthreads();\n", ""), "--format", "sarif")
    sarif = ended.json
    (run,) = sarif["runs"]
    assert ended.code == 1 and sarif["version"] == "2.1.0"
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert rules == list(dict.fromkeys(result["ruleId"] for result in run["results"]))
    race = next(result for result in run["results"] if result["ruleId"] == "race")
    assert rules[race["ruleIndex"]] == "race" and race["message"]["text"]
    for location in (*race["locations"], *race["relatedLocations"]):
        assert location["physicalLocation"]["artifactLocation"]["uri"] == "sums.cu"
        assert location["physicalLocation"]["region"]["startLine"] == 9
    assert RULES.keys() == FINDING_REASONS.keys()


def test_a_report_can_be_written_to_a_file(home, own):
    ended = home.run(*own(), "--format", "sarif", "-o", "report.sarif")
    assert (
        ended.code == 0
        and ended.out == ""
        and '"results": []' in (home.data / "report.sarif").read_text()
    )


@pytest.mark.parametrize(
    ("template", "settings", "code", "kind"),
    quick_first(
        [
            ("right", "threads=64", 0, None),
            ("broken", "defect=barriers_cross", 1, "deadlock"),
            ("broken", "defect=uninitialised_shared", 1, "uninitialised"),
            ("broken", "defect=copy_not_waited_for", 1, "in_flight_read"),
        ],
        2,
    ),
)
def test_a_candidate_of_a_template(home, template, settings, code, kind):
    ended = home.run("check", "axpy", "--template", template, "--set", settings, "--json")
    kinds = {finding["kind"] for finding in ended.json["findings"]}
    assert ended.code == code, ended.err
    assert kind in kinds if kind else not kinds
    assert all(
        finding["where"][0] == f"axpy/{template}.cu.j2"
        for finding in ended.json["findings"]
        if finding["where"]
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("check", "axpy"), "needs --template"),
        (("check", "nope", "--template", "x"), "unknown kernel 'nope'"),
        (("check", "sums.cu"), "or --launch LAUNCH.toml"),
        (("check", "sums.cu", "--arg", "n:int=4"), "needs a kernel: --entry NAME"),  # it has two
        (("check", "one.cu", "--arg", "n:int=4"), "single takes (float* x, int n)"),
        (("check", "none.cu", "--launch", "launch.toml"), "none.cu does not exist"),
        (("check", "sums.cu", "--launch", "none.toml"), "the file is missing"),
        (("check", "sums.cu", "--launch", "launch.toml", "--preset", "x"), "not for a file"),
        (("check", "axpy", "--template", "right", "--target", "emulator:x"), "unknown target"),
        (("check", "axpy", "--template", "broken", "--set", "defect=does_not_compile"), "valeu"),
        (
            ("check", "axpy", "--template", "broken", "--set", "defect=does_not_render"),
            "no_such_name",
        ),
        (("album", "--only", "no such entry"), "no entry of the album"),
    ],
)
def test_a_mistake_of_the_caller_is_one_sentence_and_code_2(here, own, capsys, arguments, says):
    own()
    Path("one.cu").write_text("__global__ void single(float* x, int n) { x[n] = 1; }")
    ended = Ended(run(arguments), *capsys.readouterr())
    assert ended.code == 2 and says in one_sentence(ended), (ended.code, ended.err)


def test_unknown_inline_assembly_is_refused_since_it_would_not_be_seen(home, own):
    ended = home.run(*own("int i =", 'asm volatile("frob.b32 1;"); int i ='))
    sentence = one_sentence(ended)
    assert ended.code == 2 and "inline PTX that the emulator does not have: `frob.b32`" in sentence


@pytest.mark.slow
def test_the_album_says_what_was_expected_and_what_came(home):
    ended = home.run("album", "--only", "axpy no", "--json")
    rows = {entry["name"]: entry for entry in ended.json}
    assert ended.code == 0, [entry for entry in ended.json if not entry["ok"]]
    assert (
        rows["nothing_written"]["got"] == "correctness: unwritten"
        and rows["none"]["got"] == "green"
    )
    assert all(row["ok"] and not row["why"] and row["expected"] for row in rows.values())
