"""Submitted sources: judged over REST and by `greenfast judge`, with feedback; hostile ones."""

from __future__ import annotations

import json
import shutil
import subprocess
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from service_home import KERNELS, until

from greenfast.app.bundle.launch_header import launch_header
from greenfast.app.settings import Settings
from greenfast.app.wiring import Services
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.kernels.frozen import frozen_catalogue, kernel_files
from greenfast.search.kernels.identity import kernel_identity
from greenfast.search.toolchain.toolkit import find_toolkit

STUB = Path(__file__).resolve().parents[1] / "unit" / "runtime_stub" / "host_stub.cpp"
LAUNCH = 'grid = ["ceil_div(N, 128)"]\nblock = [128]\n[tiles]\ntile_q = "128"\n'
RIGHT = """#include <cuda_fp16.h>
extern "C" __global__ void mine(const __half* x, __half* y, int N, float a, float b)
{
    int i = blockIdx.x * 128 + threadIdx.x;
    if (i < N) y[i] = __float2half(a * __half2float(x[i]) + b);
}
"""
WRONG = RIGHT.replace("+ b);", "- b);")
RACING = """#include <cuda_fp16.h>
extern "C" __global__ void mine(const __half* x, __half* y, int N, float a, float b)
{
    __shared__ __half tile[128];
    int i = blockIdx.x * 128 + threadIdx.x;
    tile[threadIdx.x] = __float2half(i < N ? a * __half2float(x[i]) + b : 0.0f);
    int mirror = blockIdx.x * 128 + 127 - threadIdx.x;
    if (mirror < N) y[mirror] = tile[127 - threadIdx.x];
}
"""
# A race and wrong values that no size of their own tiles shows.
RACING_IN_BETWEEN = RIGHT.replace(
    "if (i < N)",
    "__shared__ int seen[128];\n    seen[threadIdx.x] = 0;\n"
    "    if (N > 64 && seen[threadIdx.x ^ 1] == 12345) y[0] = x[0];\n    if (i < N)",
)
WRONG_IN_BETWEEN = RIGHT.replace("i < N)", "i < N && (N <= 64 || N >= 4000))")
READING = RIGHT + 'asm(".incbin \\"/etc/passwd\\"");\n'
INCLUDING = '#include "/etc/passwd"\n' + RIGHT
MISSPELT = '#include "gf/dtipe.cuh"\n' + RIGHT
# Code for the CPU that neither NVRTC nor a check sees; in a program, it runs before main.
HIDING = """#ifndef __CUDACC_RTC__
extern "C" int creat(const char*, unsigned);
static int ran = creat("hidden_code_ran", 0644);
#endif
"""
HOSTILE_TEXT = "<script>alert(1)</script>\x1b[31m\nGREEN \u202e"


def submit(service, source, **fields):
    body = {"kernel": "axpy", "source": source, "launch": LAUNCH, "entry": "mine", **fields}
    return httpx.post(service.url + "/api/v1/submissions", json=body, trust_env=False, timeout=60)


def read(service, path):
    return httpx.get(service.url + path, trust_env=False, timeout=60)


@pytest.fixture(scope="module")
def judged(service):
    """One submission of each kind, all judged; those that must fail without a baseline."""
    ids = {"right": submit(service, RIGHT, author=HOSTILE_TEXT, model="m", hypothesis="h").json()}
    for name, source, tile in (
        ("wrong", WRONG, "128"),
        ("racing", RACING, "128"),
        ("racing in between", RACING_IN_BETWEEN, "1"),
        ("wrong in between", WRONG_IN_BETWEEN, "1000003"),
        ("reading", READING, "128"),
        ("including", INCLUDING, "128"),
        ("misspelt", MISSPELT, "128"),
        ("hiding", HIDING + RIGHT, "128"),
    ):
        launch = LAUNCH.replace('"128"', f'"{tile}"')
        answer = submit(service, source, launch=launch, author=HOSTILE_TEXT, baseline="none")
        assert answer.status_code == 201, answer.text
        ids[name] = answer.json()

    def result(name):
        report = read(service, f"/api/v1/submissions/{ids[name]['id']}").json()
        return report if report["status"] not in ("queued", "running") else None

    return {name: until(lambda name=name: result(name), f"{name} is judged", 400) for name in ids}


def lines_of(report, kind):
    item = next(item for item in report["feedback"] if item["kind"] == kind)
    return [(line["role"], line["line"], line["text"]) for line in item["lines"]]


def test_a_right_source_is_green_with_its_time_and_its_author(service, judged):
    right = judged["right"]
    assert right["verdict"] == "green" and right["time_kind"] == "modelled"
    assert right["ratio_to_baseline"] is not None and right["author"] == HOSTILE_TEXT
    assert {"time", "assembler"} <= {item["kind"] for item in right["feedback"]}
    trial = read(service, f"/api/v1/searches/{right['id']}/trials/{right['trial']}").json()
    assert trial["origin"] == "submitted" and trial["template"].startswith("submitted_")
    assert read(service, f"/api/v1/sources/{right['source_digest']}").text.rstrip() == (
        RIGHT.rstrip()
    )


def test_a_wrong_source_is_rejected_with_the_stage_and_how_its_error_looks(judged):
    wrong = judged["wrong"]
    assert (wrong["verdict"], wrong["stage"]) == ("rejected", "correctness")
    values = next(item for item in wrong["feedback"] if item["kind"] == "values")
    assert any("one sign" in word for word in values["character"])
    assert "correctness" in wrong["feedback"][0]["sentence"]


def test_a_racing_source_is_told_both_lines(judged):
    racing = judged["racing"]
    assert racing["verdict"] == "rejected"
    assert lines_of(racing, "race") == [
        ("at", 8, "if (mirror < N) y[mirror] = tile[127 - threadIdx.x];"),
        (
            "against",
            6,
            "tile[threadIdx.x] = __float2half(i < N ? a * __half2float(x[i]) + b : 0.0f);",
        ),
    ]


@pytest.mark.parametrize(
    "name, reasons",
    [
        ("racing in between", {"race", "uninitialised"}),
        ("wrong in between", {"wrong_values", "unwritten"}),
    ],
)
def test_the_tiles_that_an_author_names_do_not_choose_the_sizes(judged, name, reasons):
    assert judged[name]["verdict"] == "rejected" and judged[name]["reason"] in reasons


def test_a_header_that_does_not_exist_is_a_verdict_and_no_failure(judged):
    misspelt = judged["misspelt"]
    assert (misspelt["status"], misspelt["verdict"]) == ("completed", "rejected")
    assert "(did you mean gf/dtype.cuh? known: " in misspelt["feedback"][0]["sentence"]


@pytest.mark.parametrize("name", ["reading", "including"])
def test_a_source_that_reads_files_learns_nothing(service, judged, name):
    report = judged[name]
    assert (report["verdict"], report["stage"]) == ("rejected", "compile")
    for path in (
        f"/api/v1/submissions/{report['id']}",
        f"/api/v1/searches/{report['id']}/trials/{report['trial']}",
        f"/searches/{report['id']}/trials/{report['trial']}",
    ):
        assert "root:" not in read(service, path).text


def test_what_an_author_says_is_escaped_on_pages_and_in_terminals(service, judged):
    report = judged["right"]
    for path in ("/", f"/searches/{report['id']}", f"/searches/{report['id']}/trials/1"):
        page = read(service, path)
        assert page.status_code == 200
        assert "<script>alert(1)" not in page.text and "\x1b" not in page.text
    assert "&lt;script&gt;alert(1)" in page.text and "hypothesis" in page.text
    wrong = read(service, f"/searches/{judged['wrong']['id']}/trials/{judged['wrong']['trial']}")
    assert wrong.status_code == 200 and "submitted_" in wrong.text
    shown = service.home.run("show", f"{report['id']}/1")
    assert shown.code == 0 and "\x1b" not in shown.out and "\u202e" not in shown.out


def test_an_exact_repeat_is_answered_from_the_store(service, judged, tmp_path):
    searches = len(read(service, "/api/v1/searches").json()["items"])
    again = submit(service, RIGHT.replace("\n", "\r\n"), author="somebody else")
    assert again.status_code == 200 and again.json()["repeated"] is True
    assert again.json()["id"] == judged["right"]["id"] and again.json()["verdict"] == "green"
    source, launch = tmp_path / "a.cu", tmp_path / "launch.toml"
    source.write_text(RIGHT)
    launch.write_text(LAUNCH)
    command = ("judge", "axpy", str(source), "--launch", str(launch), "--entry", "mine")
    ended = service.home.run(*command, "--json")
    assert ended.code == 0 and ended.json["repeated"] is True
    assert len(read(service, "/api/v1/searches").json()["items"]) == searches
    other = submit(
        service, RIGHT, launch=LAUNCH.replace("ceil_div(N, 128)", "ceil_div(N, 128) + 1")
    )
    assert other.status_code == 201  # other launches: another submission


def test_a_submitted_champion_is_a_baseline_and_a_submission_is_bundled(service, judged, tmp_path):
    home, search_id = service.home, judged["right"]["id"]
    services = Services(Settings(data=home.data))
    try:
        plan = services.store.plan(search_id)
        later = replace(
            plan, submitted=None, champion=plan.submitted, baseline=f"champion {search_id}/1"
        )
        catalogue = Catalogue([KERNELS])
        files = services.files_of(later, catalogue)
        kernel = frozen_catalogue(files, tmp_path / "cache").kernel("axpy")
        assert kernel.template(plan.submitted.template).launches[0].entry == "mine"
        assert kernel_identity(kernel) == kernel_identity(catalogue.kernel("axpy"))
        assert services.files_of(replace(later, champion=None), catalogue) == kernel_files(
            catalogue.kernel("axpy"), catalogue.include_dirs
        )
    finally:
        services.close()
    saved = home.run("bundle", search_id, "--trial", "1", "-o", str(tmp_path / "b.zip"))
    assert saved.code == 0, saved.err
    with zipfile.ZipFile(tmp_path / "b.zip") as bundle:
        texts = {name: bundle.read(name) for name in bundle.namelist()}
    sources = [text.decode().rstrip() for name, text in texts.items() if name.endswith(".cu")]
    assert RIGHT.rstrip() in sources


@pytest.fixture
def hiding_bundle(service, judged, tmp_path):
    """The unpacked bundle of the source that hides code, and a libcuda that runs nothing."""
    assert judged["hiding"]["verdict"] == "green"
    search_id = judged["hiding"]["id"]
    saved = service.home.run("bundle", search_id, "-o", str(tmp_path / "b.zip"))
    assert saved.code == 0, saved.err
    with zipfile.ZipFile(tmp_path / "b.zip") as bundle:
        bundle.extractall(tmp_path)
    include = [f"-I{folder}" for folder in find_toolkit().include_dirs]
    stub = ["g++", "-shared", "-fPIC", *include, "-o", "libcuda.so.1", str(STUB)]
    subprocess.run(stub, cwd=tmp_path, check=True, timeout=120)
    (tmp_path / "libcuda.so").symlink_to("libcuda.so.1")
    return tmp_path


def run_host(folder, **environment):
    return subprocess.run(
        ["./host"],
        cwd=folder,
        env={"LD_LIBRARY_PATH": str(folder), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_host_program_launches_machine_code_and_runs_nothing_of_the_source(hiding_bundle):
    folder = hiding_bundle
    described = json.loads((folder / "launch.json").read_text())
    arguments = described["workloads"][0]["arguments"]
    place = str(len(arguments))
    arguments.append({"name": "ticket", "kind": "workspace", "bytes": 4, "zero_fill": True})
    (folder / "launch.h").write_text(launch_header(described))
    include = [f"-I{path}" for path in find_toolkit().include_dirs]
    build = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", *include, "-x", "c++", "host.cu"]
    build += ["-o", "host", "-Wl,--no-as-needed", "-L.", "-lcuda"]
    subprocess.run(build, cwd=folder, check=True, timeout=120)
    done = run_host(folder, STUB_TICKET=place)
    assert not (folder / "hidden_code_ran").exists()
    (launch,) = json.loads((folder / "launch.json").read_text())["workloads"][0]["launches"]
    sizes = " ".join(map(str, (*launch["grid"], *launch["block"], 0)))
    assert done.stdout.splitlines()[0] == f"launch mine {sizes}"
    assert done.returncode == 1 and " elements are NaN" in done.stdout  # the stub writes no output
    other = run_host(folder, STUB_SM="120")
    assert (other.returncode, other.stdout) == (1, "")
    assert other.stderr.endswith("-cubin -arch=sm_120 -o kernel.sm_120.cubin kernel.cu\n")
    (folder / "kernel.sm_90.cubin").rename(folder / "kernel.sm_80.cubin")
    assert "launch mine" in run_host(folder, STUB_SM="86").stdout
    assert "machine code" in run_host(folder, STUB_SM="90").stderr


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("nvcc") is None, reason="NVCC IS NOT INSTALLED: the host program was not compiled"
)
def test_what_nvcc_compiles_runs_nothing_of_the_source(hiding_bundle):
    """As README.txt has it; a program that includes the source is the twin that runs it."""
    folder = hiding_bundle

    def nvcc(*arguments):
        command = ["nvcc", "-std=c++17", "-Werror", "all-warnings", *arguments]
        subprocess.run(command, cwd=folder, check=True, timeout=300)

    (folder / "kernel.sm_90.cubin").unlink()
    nvcc("-cubin", "-arch=sm_90", "-o", "kernel.sm_90.cubin", "kernel.cu")
    nvcc("-o", "host", "host.cu", "-L.", "-lcuda")
    assert "launch mine" in run_host(folder).stdout
    assert not (folder / "hidden_code_ran").exists()
    (folder / "twin.cu").write_text('#include "kernel.cu"\nint main() {}\n')
    nvcc("-o", "host", "twin.cu")
    run_host(folder)
    assert (folder / "hidden_code_ran").exists()


@pytest.mark.parametrize(
    "fields, code",
    [
        ({"source": "x" * 500_001}, "source_too_large"),
        ({"source": RIGHT + "\0"}, "bad_source"),
        ({"source": RIGHT + "// \u202e"}, "bad_source"),
        ({"source": RIGHT + "\ud800"}, "bad_source"),
        ({"source": '#line 1 "/etc/passwd"\n' + RIGHT}, "bad_source"),
        ({"source": RIGHT + "{% endraw %}{{ 1 }}{% raw %}"}, "bad_source"),
        ({"entry": "../x"}, "bad_entry"),
        ({"entry": "mine\n"}, "bad_entry"),
        ({"launch": 'grid = ["N"]\nblock = [2048]\n'}, "empty_space"),
        ({"launch": 'name = "right"\n' + LAUNCH}, "unknown_key"),
        ({"launch": "grid = [\"__import__('os')\"]\nblock = [1]\n"}, "bad_expression"),
        ({"launch": 'grid = ["1"]\nblock = [1]\n["tiles\\n[x]"]\n'}, "unknown_key"),
        ({"author": "x" * 201}, "too_long"),
        ({"author": "\udc00"}, "bad_text"),
        ({"parent": "0" * 64}, "unknown_parent"),
        ({"kernel": "../axpy"}, "unknown_kernel"),
        ({"target": "replay:none"}, "unknown_target"),
        ({"colour": "red"}, "unknown_field"),
    ],
)
def test_what_cannot_be_judged_is_refused_with_a_code(service, fields, code):
    # Lone surrogates are valid JSON escapes, which only this spelling sends.
    body = {"kernel": "axpy", "source": RIGHT, "launch": LAUNCH, "entry": "mine", **fields}
    answer = httpx.post(
        service.url + "/api/v1/submissions",
        content=json.dumps(body).encode(),
        headers={"content-type": "application/json"},
        trust_env=False,
    )
    problem = answer.json()
    assert answer.status_code == 422 and problem["code"] == code, problem
    assert "/tmp" not in problem["detail"] and "submitted_" not in problem["detail"]


def test_other_searches_are_no_submissions(service, judged):
    row = service.submit("axpy", templates=["right"], budget={"trials": 1}, baseline="none")
    answer = read(service, f"/api/v1/submissions/{row['id']}")
    assert answer.status_code == 404 and answer.json()["code"] == "unknown_submission"
    listed = [item["id"] for item in read(service, "/api/v1/submissions").json()["items"]]
    assert row["id"] not in listed and judged["right"]["id"] in listed


def test_one_source_sent_by_many_at_once_is_one_search(service):
    source = RIGHT + "// sent by many at once\n"
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: submit(service, source, baseline="none"), range(4)))
    told = [(answer.status_code, answer.text[:300]) for answer in answers]
    taken = [answer for answer in answers if answer.status_code != 503]  # of a busy service
    assert {answer.status_code for answer in taken} <= {200, 201}, told
    assert sum(answer.status_code == 201 for answer in taken) == 1, told
    assert len({answer.json()["id"] for answer in taken}) == 1, told
