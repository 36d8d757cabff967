"""Logs, caches and tables of other tuners' own making: AutoTVM, Triton, Optuna, Ray Tune."""

from __future__ import annotations

import json

import pytest

from greenfast.search.errors import UsageError
from greenfast.search.recordings.foreign import read_space
from greenfast.search.recordings.foreign_objectives import Wish


@pytest.fixture
def read(tmp_path):
    def read_content(content, **wish):
        path = tmp_path / "space.log"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return read_space(path, wish=Wish(**wish))

    return read_content


def figures(space):
    return {each.configuration: each.figure for each in space.results}


def autotvm_line(split, unroll, costs_s, error=0, task="dense.cuda"):
    knobs = [["tile_x", "sp", split], ["unroll", "ot", unroll]]
    return {
        "input": ["cuda -model=gpu", task, [["TENSOR", [1, 64], "float32"]], {}],
        "config": {"index": 1, "code_hash": None, "entity": knobs},
        "result": [costs_s, error, 1.5, 1700000000.0],
        "version": 0.2,
    }


def older(line):
    """As AutoTVM wrote a line before version 0.2."""
    knobs = {"i": 1, "t": "direct", "c": None, "e": line["config"]["entity"]}
    return {"i": [*line["input"], ["dense", []], knobs], "r": line["result"], "v": 0.1}


@pytest.mark.parametrize("form", [dict, older])
def test_a_log_of_autotvm_is_a_space_of_its_knobs(read, form):
    lines = [
        autotvm_line([4, 16], 0, [2e-6, 4e-6]),
        autotvm_line([8, 8], 0, [1e9], error=4),
        autotvm_line([8, 8], 512, [1e-6]),
        autotvm_line([4, 16], 0, [3e-6]),  # measured again
    ]
    space = read("# tuned\n" + "\n".join(json.dumps(form(line)) for line in lines))
    assert space.form == "AutoTVM log" and space.parameters == ("tile_x", "unroll")
    expected = {("[4, 16]", 0): 3.0, ("[8, 8]", 0): None, ("[8, 8]", 512): 1.0}
    assert figures(space) == pytest.approx(expected)
    assert [each.failure for each in space.results] == ["", "runtime", ""]
    with pytest.raises(UsageError, match="2 tasks of AutoTVM, each with a space of its own: keep"):
        read(
            "\n".join(
                json.dumps(form(line)) for line in [*lines, autotvm_line([1], 0, [1], task="t")]
            )
        )


def triton_pair(block, warps, times, **settings):
    config = {"kwargs": {"BLOCK": block}, "num_warps": warps, "num_stages": 2, "maxnreg": None}
    return [{**config, "pre_hook": None, **settings}, times]


def test_a_cache_of_triton_is_a_space_of_its_arguments_and_settings(read):
    none = [float("inf")] * 3
    pairs = [
        triton_pair(64, 4, [0.5, 0.4, 0.6]),
        triton_pair(128, 4, none),
        triton_pair(64, 8, 0.25),
    ]
    space = read({"key": [1], "configs_timings": pairs})
    assert space.parameters == ("BLOCK", "num_warps", "num_stages")
    assert figures(space) == {(64, 4, 2): 500.0, (128, 4, 2): None, (64, 8, 2): 250.0}
    limited = read({"configs_timings": [*pairs, triton_pair(64, 8, [0.2], maxnreg=128)]})
    assert figures(limited)[(64, 8, 2, 128)] == 200.0 and (64, 8, 2, 0) in figures(limited)
    with pytest.raises(UsageError, match="entry 0 of configs_timings is no configuration"):
        read({"configs_timings": [[1, 2]]})


OPTUNA = """number,value,datetime_start,duration,params_block,params_tile,state
0,-1.5,2024-01-01 00:00:00,0 days 00:00:01,64,2,COMPLETE
1,-0.5,2024-01-01 00:00:00,0 days 00:00:01,64,4,COMPLETE
2,,2024-01-01 00:00:00,0 days 00:00:01,128,2,FAIL
"""
RAY = """trial_id,latency_ms,done,time_total_s,config/BLOCK,config/STAGES,logdir
a1,1.5,True,3.2,64,2,/x/a
a2,1.2,True,3.1,128,2,/x/b
"""


def test_tables_of_optuna_and_ray_tune_have_their_parameters_alone(read):
    space = read(OPTUNA)
    assert space.parameters == ("block", "tile") and space.objective == "value"
    assert figures(space) == {(64, 2): 1.0, (64, 4): 2.0, (128, 2): None}
    space = read(RAY)
    assert figures(space) == {(64, 2): 1500.0, (128, 2): 1200.0}
    assert space.left_out == ("trial_id", "done", "time_total_s", "logdir")
    assert figures(read(RAY, objective="time_total_s")) == {(64, 2): 3.2, (128, 2): 3.1}


def test_lines_with_a_configuration_are_records(read):
    lines = [{"configuration": {"B": b, "opt": "-O3"}, "time": t} for b, t in ((1, 2.0), (2, 1.0))]
    space = read("\n".join(map(json.dumps, lines)))
    assert space.parameters == ("B", "opt") and not space.left_out
    assert figures(space) == {(1, "-O3"): 2000.0, (2, "-O3"): 1000.0}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("BLOCK time\n64 1.5\n", "it is neither JSON nor a table with commas, semicolons or tabs"),
        ({"BLOCK": 64, "num_warps": 4}, "it holds no configurations with times of a known form"),
    ],
)
def test_another_file_is_refused_with_the_forms_that_are_known(read, content, sentence):
    with pytest.raises(UsageError, match=sentence):
        read(content)
