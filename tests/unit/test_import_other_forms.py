"""Results of KTT, CLTune and tables of times, and objectives that are no time."""

from __future__ import annotations

import json

import pytest

from greenfast.search.errors import UsageError
from greenfast.search.recordings.foreign import read_space
from greenfast.search.recordings.foreign_kernel import parameters_of
from greenfast.search.recordings.foreign_objectives import Wish


def ktt_result(size, time_us, status="Ok"):
    return {
        "KernelName": "sum",
        "Configuration": [
            {"Name": "SIZE", "Value": size, "ValueType": "UnsignedInt"},
            {"Name": "FAST", "Value": True, "ValueType": "Bool"},
        ],
        "ComputationResults": [],
        "Status": status,
        "TotalDuration": time_us,
    }


KTT = {
    "Metadata": {"Device": "GPU", "KttVersion": "2.1.0", "TimeUnit": "Milliseconds"},
    "Results": [
        ktt_result(16, 3.0),
        ktt_result(32, 2.0),
        ktt_result(64, 0.0, "CompilationFailed"),
        ktt_result(32, 4.0),  # measured, then profiled
        ktt_result(16, 0.0, "ValidationFailed"),  # wrong once is wrong
    ],
}
CLTUNE = {
    "device": "GPU",
    "results": [
        {"kernel": "Xgemm", "time": 0.5, "parameters": {"KWG": 16, "SA": 0}},
        {"kernel": "Xgemm", "time": 0.25, "parameters": {"KWG": 32, "SA": 0}},
    ],
}
CLTUNE_TABLE = "name;time;threads;KWG;SA;\nXgemm;0.50;64;16;0;\nXgemm;0.25;64;32;0;\n"
KTT_TABLE = (
    "Kernel name,Computation duration (us),Global size,Local size,SIZE,"
    "dram__sectors_read.sum,Registers count\n"
    "sum,77.4,1024,32,32,262299,12\nsum,63.5,1024,64,64,2,12\n"
)
ATF_TABLE = """timestamp;evaluations;cost;WG;CACHED
2024-01-01;0;81;32;true
2024-01-01;1;64;64;false
"""
BAT_TABLE = (
    "timestamp,config.x,config.y,correctness,validity,objective,error\n"
    "2023,1,a,1.0,Correct,5.5,no error\n2023,2,a,1.0,Runtime,10000.0,bad launch\n"
)


@pytest.fixture
def read(tmp_path):
    def read_content(content, **wish):
        path = tmp_path / "space.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return read_space(path, wish=Wish(**wish))

    return read_content


def test_ktt_results_are_read_and_their_runs_merged(read):
    space = read(KTT)
    assert (space.form, space.kernel, space.device) == ("KTT 2.1.0", "sum", "GPU")
    assert space.parameters == ("SIZE", "FAST")
    table = {each.configuration[0]: (each.figure, each.failure) for each in space.results}
    assert table == {16: (None, "correctness"), 32: (3000.0, ""), 64: (None, "compile")}


@pytest.mark.parametrize("content", [CLTUNE, CLTUNE_TABLE], ids=["JSON", "table"])
def test_cltune_results_are_read_in_milliseconds(read, content):
    space = read(content)
    assert space.form.startswith("CLTune") and space.kernel == "Xgemm"
    assert space.parameters == ("KWG", "SA")
    assert [each.figure for each in space.results] == [500.0, 250.0]


@pytest.mark.parametrize(
    ("text", "parameters", "figures"),
    [
        (KTT_TABLE, ("SIZE",), [77.4, 63.5]),
        (BAT_TABLE, ("x", "y"), [5500.0, None]),
        ("a\tb\ttime_us\n1\tx\t2\n2\tx\t-\n", ("a", "b"), [2.0, None]),
        (ATF_TABLE, ("WG", "CACHED"), [81.0, 64.0]),
        ("a,GFLOPS,Power [W],runtime (us)\n1,9,80,2\n2,8,90,3\n", ("a",), [2.0, 3.0]),
        ("a,Time,Valid\n1,2,True\n2,2,False\n", ("a",), [2000.0, None]),
        ('{"a": 1, "time_us": 2}\n{"a": 2, "time_us": null}\n', ("a",), [2.0, None]),
        ('[{"a": true, "time_us": 2}, {"a": false, "time_us": 3}]', ("a",), [2.0, 3.0]),
        ('{"a": 1, "times": [1, 3], "time": 2}\n{"a": 2, "time": 3}\n', ("a",), [2e3, 3e3]),
    ],
    ids=[
        "KTT",
        "BAT",
        "plain",
        "ATF",
        "measurements",
        "validity",
        "JSON lines",
        "JSON list",
        "samples",
    ],
)
def test_a_table_is_read_by_its_heading(read, text, parameters, figures):
    space = read(text)
    assert space.parameters == parameters
    assert [each.figure for each in space.results] == figures


def test_the_columns_of_a_table_can_be_named(read):
    text = "a,b,watts,time\n1,2,80,5\n2,2,90,6\n"
    assert read(text).parameters == ("a", "b", "watts")
    assert read(text, parameters=("a", "b")).parameters == ("a", "b")


def test_a_launch_size_that_the_rest_does_not_determine_is_a_parameter(read):
    """CLTune prints `threads` of each configuration; others tune a parameter of that name."""
    space = read("threads,x,time_us\n32,1,2\n64,1,3\n32,2,4\n")
    assert space.parameters == ("x", "threads") and space.left_out == ()
    printed = read("threads,x,time_us\n32,1,2\n64,2,3\n")
    assert printed.parameters == ("x",) and printed.left_out == ("threads",)


def test_a_cache_of_failures_alone_says_so(read):
    row = {"x": 1, "time": "CompilationFailedConfig", "compile_time": 3.0}
    with pytest.raises(UsageError, match="no configuration has a measured time"):
        read({"tune_params_keys": ["x"], "cache": {"1": row}})


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (",,\n,,\n", "no titles"),
        ("a,b\n1,2\n", "no column for the time"),
        ("a,time\n1,2\n3\n", "line 3 has a length of 1 columns, its heading of 2"),
        ("a,time\n1,2,3\n", "line 2 has a length of 3 columns, its heading of 2"),
        ("a,time,status\n1,2\n", "line 2 has a length of 2 columns, its heading of 3"),
        ("a,time\n1,2x\n", "line 2 has the time '2x'"),
        ("a;time\n1;3,5\n", "decimals with a point"),
        ('{"a": 1}\n{"a": 2}\n', "no column for the time"),
        ("a,a,time\n1,2,3\n", "two columns"),
        ("time,kernel\n1,f\n", "no column for a parameter"),
        ("kernel,a,time\nf,1,3\ng,1,3\n", "several kernels (f, g)"),
        ("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "Git LFS"),
        ({"Metadata": {}, "Results": [{"Status": "Ok"}]}, "result 0 has no Configuration"),
    ],
)
def test_a_damaged_file_is_refused_with_its_place(read, content, part):
    with pytest.raises(UsageError) as error:
        read(content)
    assert error.value.code == "space_damaged" and part in error.value.message


def test_a_description_of_a_space_is_told_from_results(read):
    with pytest.raises(UsageError, match="holds no results") as error:
        read({"ConfigurationSpace": {}, "KernelSpecification": {}})
    assert error.value.code == "not_a_space"


def scores(*values):
    rows = {str(n): {"n": n, "score": v, "compile_time": 9.0} for n, v in enumerate(values)}
    return {"tune_params_keys": ["n"], "objective": "score", "cache": rows}


def test_a_score_is_maximised_also_below_zero(read):
    """Kernel Tuner's tuning of its own strategies; its compile time is not the objective."""
    space = read(scores(-1.0, 0.5, 0.0))
    assert space.objective == "score" and space.scale == "1 + distance from the best "
    assert [each.figure for each in space.results] == [2.5, 1.0, 1.5]
    lower = read(scores(-1.0, 0.5, 0.0), higher_is_better=False)
    assert [each.figure for each in lower.results] == [1.0, 2.5, 2.0]


def test_an_objective_that_nothing_measures_is_not_replaced_by_another(read):
    content = scores(1.0)
    content["objective"] = "energy"
    with pytest.raises(UsageError, match="measures no energy") as error:
        read(content)
    assert error.value.code == "unknown_objective" and "score" in error.value.mend


def test_numbers_that_are_written_as_texts_are_ordered_as_numbers(read):
    """KTT's T4 files write every value as a text, and list profiling runs apart."""
    rows = [
        {
            "configuration": {"size": size},
            "measurements": [{"name": "time", "value": time, "unit": ""}],
            "objectives": ["time"],
            "invalidity": "correct",
        }
        for size, time in (("128", 3.0), ("32", 1.0), ("32", 2.0))
    ]
    metadata = {"autotuner": "KTT", "timeunit": "microseconds"}
    space = read({"metadata": metadata, "results": rows})
    assert [each.figure for each in space.results] == [3.0, 1.5]
    (parameter,) = parameters_of(space)
    assert parameter.kind == "int" and [here for _, here in parameter.values] == [32, 128]


def test_many_runs_of_one_configuration_take_no_longer_than_runs_of_many(read):
    space = read("SIZE,time_ms\n" + "16,2\n" * 40_000 + "32,1\n")
    assert [result.figure for result in space.results] == [2000.0, 1000.0]
