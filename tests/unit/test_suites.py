"""bench.correctness.suites on checkouts made here: labels, launches, and verdicts beside them."""

from __future__ import annotations

import numpy as np
import pytest

from bench.correctness.suites import hirace, scor
from bench.correctness.suites.checking import check_case
from bench.correctness.suites.graphs import dense, edgeless, layered, star
from bench.correctness.suites.scores import summary
from bench.pages.suite_tables import outcomes
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.targets import TargetSettings, open_target

COUNTS_NEIGHBOURS = """#include <cstdio>
typedef int data_t;
#include "host_part.h"

__global__ void test_kernel(int* nindex, int* nlist, data_t* data1, data_t* data2, int numv)
{
  const int v = threadIdx.x + blockIdx.x * blockDim.x;
  %s {
    const int degree = nindex[v + 1] - nindex[v];
    if (degree > 0) %s;
  }
}

void serial_code(int* data1) { printf("host {%%d", data1[0]); }
"""
HOST_PART = """#include <cuda.h>
#include <cstdlib>
int main() { exit(0); }
"""
GUARD, NO_GUARD = "if (v < numv)", "if (v <= numv + 40)"
ADDS, FORGETS = "atomicAdd(data1, degree)", "data1[0] += degree"

HANDS_OVER = """#include <stdio.h>
#define NBLOCKS  2
#define TPERBLK  1

__device__ int flag = 0;
__global__ void kmain(volatile unsigned int *word)
{
    if (blockIdx.x == 0) { word[0] = 1; %s atomicExch(&flag, 1); }
    else { while (atomicAdd(&flag, 0) == 0) { } %s word[0] = 2; }
}
int main() { kmain<<<NBLOCKS, TPERBLK>>>(0); }
"""


@pytest.fixture(scope="module")
def target(artifacts):
    include_dirs = Catalogue([REPOSITORY_TEMPLATES]).include_dirs
    opened = open_target("emulator:h200", TargetSettings(artifacts, include_dirs, 2))
    yield opened
    opened.close()


def checked(suite, checkout, target, folder):
    cases = suite.cases(checkout)
    return {case.name: check_case(case, target, folder).row() for case in cases}


@pytest.mark.slow
def test_findings_are_compared_with_the_names_of_indigos_files(tmp_path, target):
    files = {
        "push_all": COUNTS_NEIGHBOURS % (GUARD, ADDS),
        "push_all_boundsBug_atomicBug": COUNTS_NEIGHBOURS % (NO_GUARD, FORGETS),
        "push_all_guardBug": COUNTS_NEIGHBOURS % (GUARD, ADDS),  # there is no bug in it
        "push_other": COUNTS_NEIGHBOURS % (GUARD, FORGETS),  # and here is one
        "push_stop": COUNTS_NEIGHBOURS % (GUARD, "no_such_function(degree)"),
    }
    sources = tmp_path / hirace.SOURCES / "push"
    sources.mkdir(parents=True)
    for name, text in files.items():
        (sources / f"{name}.cu").write_text(text)
    headers = tmp_path / hirace.HEADERS
    headers.mkdir()
    (headers / "host_part.h").write_text(HOST_PART)
    rows = checked(hirace, tmp_path, target, tmp_path)
    assert {name: row["outcome"] for name, row in rows.items()} == {
        "push_all": "right",
        "push_all_boundsBug_atomicBug": "right",
        "push_all_guardBug": "missed",
        "push_other": "false_alarm",
        "push_stop": "stopped",
    }
    assert rows["push_all_boundsBug_atomicBug"]["found"] == ["out_of_bounds", "race"]
    assert "push_other.cu:10" in rows["push_other"]["first"][0]
    counted = summary("hirace", list(rows.values()), 1.0)
    assert (counted["right"], counted["missed"], counted["stopped"]) == (2, 1, 1)
    lines = outcomes({"suites/hirace": counted}).splitlines()[2:]
    assert lines[0].endswith("| race | 2 | 1 | 0 | 1 | 0 |")


@pytest.mark.slow
def test_scors_files_name_their_own_grid(tmp_path, target):
    fence = "__threadfence();"
    files = {
        "norace_handed": HANDS_OVER % (fence, fence),
        "race_handed": HANDS_OVER % ("", fence),
    }
    sources = tmp_path / scor.SOURCES
    sources.mkdir(parents=True)
    for name, text in files.items():
        (sources / f"{name}.cu").write_text(text)
    (launch,) = scor.cases(tmp_path)[0].launches
    assert (launch.entry, launch.grid, launch.block, launch.arguments) == ("kmain", 2, 1, ("word",))
    rows = checked(scor, tmp_path, target, tmp_path)
    assert {row["outcome"] for row in rows.values()} == {"right"}, rows


@pytest.mark.parametrize("graph", [dense(20, 90, 1), star(9), layered(30), edgeless(3)])
def test_graphs_are_in_csr_form(graph):
    assert graph.offsets[0] == 0 and graph.offsets[-1] == graph.edges
    assert (np.diff(graph.offsets) >= 0).all()
    assert (
        graph.edges == 0 or 0 <= graph.neighbours.min() <= graph.neighbours.max() < graph.vertices
    )
