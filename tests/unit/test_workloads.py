"""Workloads by values: what a text, a file or a request means, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from greenfast.app.cli import main
from greenfast.search.errors import UsageError
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.kernels.identity import kernel_identity
from greenfast.search.kernels.workload_files import read_workloads
from greenfast.search.kernels.workloads import WorkloadValues
from greenfast.search.loop.plan import SearchRequest, make_plan
from greenfast.search.loop.scope import scope_of


@pytest.fixture(scope="module")
def catalogue():
    return Catalogue([REPOSITORY_TEMPLATES])


@pytest.fixture(scope="module")
def attention(catalogue):
    return catalogue.kernel("attention")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("B=8,H=16,S_q=577,D=64,dtype=bf16", "B=8,H=16,S_q=577,D=64,dtype=bf16"),
        (" D=64 , dtype=bf16,S_q=577,\tH=16,B=8 ", "B=8,H=16,S_q=577,D=64,dtype=bf16"),
        ("B=8,H=16,H_kv=16,S_q=577,S_kv=577,D=64,mask=none", "B=8,H=16,S_q=577,D=64"),
        ("B=8,H=32,H_kv=8,S_q=1,S_kv=4096,D=128", "B=8,H=32,H_kv=8,S_q=1,S_kv=4096,D=128"),
        ("vit(B=8,H=16,S_q=577,D=64)", "vit(B=8,H=16,S_q=577,D=64)"),
        ("B=1,H=1,S_q=1,S_kv=0,D=64", "B=1,H=1,S_q=1,S_kv=0,D=64"),
        ("B=2,H=8,S_q=256,D=64", "mission"),
        ("mission", "mission"),
    ],
)
def test_a_workload_has_one_name_from_which_it_is_read_again(attention, text, name):
    workload = attention.workload(text)
    assert workload.name == name
    assert attention.workload(workload.name) == workload


def test_a_dim_takes_each_value_that_its_kernel_lists_zero_too(catalogue):
    workload = catalogue.kernel("gemm").workload("M=16,N=8,K=8,turned_a=0,turned_b=1")
    assert workload.name == "M=16,N=8,K=8,turned_b=1"


def test_a_kernels_own_sentence_comes_before_what_follows_from_it(catalogue):
    with pytest.raises(UsageError) as refused:
        catalogue.kernel("gemm").workload("M=7,N=64,K=64,turned_a=1")
    assert "rows of a turned A of M=7 elements" in str(refused.value)
    assert "A_columns=7" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("B=8,H", "'H' is not NAME=VALUE (write for example B=8"),
        ("B=8,B=9,H=1,S_q=1,D=64", "B is given twice"),
        ("B=8,H=16,D=64", "S_q is missing"),
        ("B=8,H=16,S_q=5,D=64,heads=3", "heads is unknown"),
        ("B=8,H=16,S_q=5,D=64,dtype=fp32", "dtype=fp32 is not one of fp16, bf16"),
        ("B=8,H=16,S_q=5,D=65", "D=65 is not one of 32, 48, 64"),
        ("B=0,H=-1,S_q=5,D=64", "B=0 is not between 1 and 2147483647; H=-1 is not"),
        ("B=8,H=16,S_q=2147483648,D=64", "S_q=2147483648 is not between"),
        ("B=8,H=16,S_q=1e3,D=64", "S_q=1e3 is not a whole number"),
        ("B=8,H=16,S_q=\uff11\uff12,D=64", "is not a whole number"),
        ("B=8,H=16,H_kv=3,S_q=5,D=64", "H=16 is not a multiple of H_kv=3"),
        ("B=8,H=16,H_kv=0,S_q=5,D=64", "H_kv=0 is not between"),
        ("../x(B=8,H=16,S_q=5,D=64)", "names are small letters"),
        ("\x1b[31m=3", "\\x1b[31m is unknown"),
        ("B=" + "9" * 2000, "longer than 1000 characters"),
        ("=", "'=' is not NAME=VALUE"),
        ("B=8 H=16", "'B=8 H=16' is not NAME=VALUE (write for example B=8"),
        ("b=8,H=16,S_q=5,D=64", "b is unknown, did you mean B?"),
        ("vit(B=8,H=16,S_q=5,D=64", "its brackets do not match (write for example own(B=8"),
    ],
)
def test_a_wrong_workload_is_refused_with_what_is_wrong(attention, text, part):
    with pytest.raises(UsageError) as refusal:
        attention.workload(text)
    assert refusal.value.code == "bad_workload"
    assert part in str(refusal.value)


def test_rows_keep_the_stride_that_templates_rely_on(catalogue):
    rmsnorm = catalogue.kernel("rmsnorm")
    assert rmsnorm.workload("M=3,N=584").name == "M=3,N=584"
    with pytest.raises(UsageError, match="N=577 is not a multiple of 8"):
        rmsnorm.workload("M=3,N=577")


def test_a_plan_with_values_equals_one_with_their_name(catalogue):
    named, by_values = (
        make_plan(SearchRequest("attention", workloads=(workload,), seed=1), catalogue)
        for workload in (
            "mission",
            WorkloadValues((("B", 2), ("H", 8), ("S_q", 256), ("D", 64))),
        )
    )
    assert named == replace(by_values, sizes_secret=named.sizes_secret)


def test_a_label_changes_no_scope(catalogue, attention):
    plans = [
        make_plan(SearchRequest("attention", workloads=(text,), seed=1, name="x"), catalogue)
        for text in ("B=8,H=16,S_q=577,D=64", "vit(B=8,H=16,S_q=577,D=64)")
    ]
    assert len({scope_of(plan, {}).digest for plan in plans}) == 1
    assert {plan.kernel_digest for plan in plans} == {kernel_identity(attention)}


@pytest.mark.parametrize(
    ("text", "code", "part"),
    [
        ("B=70000,H=1,S_q=1,D=64", "unsupported_workload", "70,000 blocks in z"),
        ("B=64,H=128,S_q=65536,D=256", "workload_too_large", "elements, which take more than"),
    ],
)
def test_a_workload_beyond_the_machine_is_refused_before_the_search(catalogue, text, code, part):
    with pytest.raises(UsageError) as refusal:
        make_plan(SearchRequest("attention", workloads=(text,), templates=("mma",)), catalogue)
    assert refusal.value.code == code
    assert part in str(refusal.value)


ROWS = [
    {"name": "vit", "weight": 12, "dims": {"B": 8, "H": 16, "S_q": 577, "D": 64}},
    {"dims": {"B": 1, "H": 12, "S_q": 128, "D": 64}, "options": {"dtype": "bf16"}},
]
TOML = """
[[workloads]]
name = "vit"
weight = 12
dims = { B = 8, H = 16, S_q = 577, D = 64 }

[[workloads]]
dims = { B = 1, H = 12, S_q = 128, D = 64 }
options = { dtype = "bf16" }
"""
CSV = "name,weight,B,H,S_q,D,dtype\nvit,12,8,16,577,64,\n,,1,12,128,64,bf16\n"


@pytest.mark.parametrize(
    ("ending", "text"),
    [
        (".toml", TOML),
        (".json", json.dumps(ROWS)),
        (".json", json.dumps({"workloads": ROWS})),
        (".csv", CSV),
        (".csv", "\ufeff" + CSV.replace("\n", "\r\n")),
        (".csv", CSV.replace("\n", "\r")),
    ],
)
def test_files_of_three_kinds_mean_the_same(attention, tmp_path, ending, text):
    path = tmp_path / f"mine{ending}"
    path.write_bytes(text.encode())
    rows = read_workloads(path, attention)
    assert [(row.workload.name, row.weight) for row in rows] == [
        ("vit(B=8,H=16,S_q=577,D=64)", 12.0),
        ("B=1,H=12,S_q=128,D=64,dtype=bf16", 1.0),
    ]


@pytest.mark.parametrize(
    ("ending", "text"),
    [("toml", 'workloads = ["mission", "vit(B=1,H=2,S_q=3,D=64)"]'),
     ("json", '["mission", "vit(B=1,H=2,S_q=3,D=64)"]')],
)  # fmt: skip
def test_a_row_may_be_a_name_or_values_in_a_text(attention, tmp_path, ending, text):
    path = tmp_path / f"mine.{ending}"
    path.write_text(text)
    rows = read_workloads(path, attention)
    assert [row.workload.name for row in rows] == ["mission", "vit(B=1,H=2,S_q=3,D=64)"]


def test_all_wrong_rows_of_a_file_are_named_at_once(attention, tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text(
        "B,H,S_q,D,dtype,name,weight\n"
        "1,2,3,64,bf16,a,1\n"
        "0,2,3,64,bf16,b,1\n"
        "1,2,x,65,fp32,C!,-1\n"
        "1,2,3,64,bf16,a,1,more\n"
        "1,2,3,64,bf16,a,1\n"
    )
    with pytest.raises(UsageError) as refusal:
        read_workloads(path, attention)
    sentence = str(refusal.value)
    for part in (
        "line 3: B=0 is not",
        "line 4: the name 'C!'",
        "S_q=x is not",
        "D=65 is not",
        "the weight -1",
        "line 5: a cell without a column",
        "line 6: a(B=1,H=2,S_q=3,D=64,dtype=bf16) is in line 2 already",
    ):
        assert part in sentence


@pytest.mark.parametrize(
    ("name", "data", "part"),
    [
        ("mine.yaml", b"", "ends in .toml, .json, .csv"),
        ("mine.toml", b"[[workloads", "not valid TOML"),
        ("mine.toml", b"[[workloads]]\ndims = { B = 0x" + b"f" * 5000 + b" }", "number"),
        ("mine.json", b"[" * 100000, "not valid JSON"),
        ("mine.json", b'{"workloads": 3}', "a list of workloads is needed"),
        ("mine.json", b'[{"dims": 3}]', "row 1: B, H, S_q, D are missing; dims is not a table"),
        ("mine.json", b'[{"dims": {"B": true}}]', "B=True is not a whole number"),
        ("mine.json", b'[{"dims": {}, "weight": NaN}]', "the weight nan"),
        ("mine.json", b'[{"weight": 1' + b"0" * 400 + b"}]", "above 0, at most 1e+15"),
        ("mine.json", b'[{"dims": {"B": "8"}}]', "B=8 is not a whole number, but text"),
        ("mine.json", b'[{"dims": {"B": 1, "B": 2}}]', "B occurs twice"),
        ("mine.csv", b"B,H,S_q,D, B\n1,2,3,64,5\n", "B occurs twice"),
        ("mine.json", b'[{"dims": {"B": 0}}, 7]', "; row 2: 7 is no text and no table with dims"),
        ("mine.json", b'["misson"]', "row 1: unknown workload 'misson' of kernel attention"),
        ("mine.toml", b'workloads = ["S_q=5"]', "row 1: the workload S_q=5: B, H, D are missing"),
        ("mine.json", b'{"workloads": [], "B": 3}', "unknown key 'B' beside the workloads"),
        ("mine.json", b"[]", "no workload is in it"),
        ("mine.json", b'{"dims": {}}', 'needed, written [{"dims": {...}}, ...]'),
        ("mine.json", b'[{"B": 1, "H": 2, "S_q": 3, "D": 64}]', "row 1: B belongs under dims"),
        ("mine.csv", b"B;H;S_q;D\n1;2;3;64\n", "columns are separated by commas, not by ';'"),
        ("mine.csv", b"\xff\xfe", "it is not UTF-8 text"),
        ("mine.json", b" " * (2**20 + 1), "larger than 1 MiB"),
        ("missing.toml", None, "cannot be read: No such file"),
    ],
)
def test_a_file_that_is_no_list_of_workloads_is_refused(attention, tmp_path, name, data, part):
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(UsageError) as refusal:
        read_workloads(tmp_path / name, attention)
    assert part in str(refusal.value)


def test_all_workloads_that_no_memory_holds_are_named_at_once(tmp_path, capsys):
    path = tmp_path / "mine.csv"
    path.write_text("B,H,S_q,D\n1,1,1,64\n2147483647,1,1,64\n2147483647,2,1,64\n")
    assert main.run(("workloads", "attention", str(path))) == 2
    err = capsys.readouterr().err
    assert err.count("elements, which take more than") == 2 and "H=1" in err and "H=2" in err
