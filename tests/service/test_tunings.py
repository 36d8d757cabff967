"""A tuning through the whole service: REST, command line, bundle, verify, kill and resume."""

from __future__ import annotations

import hashlib
import io
import json
import signal
import zipfile

import httpx
import pytest

from greenfast.app.bundle.opened_tuning import open_tuning
from greenfast.client import ServiceError
from greenfast.runtime.machine_code import code_sections
from greenfast.search.errors import UsageError
from greenfast.search.kernels.expressions import expression

WORKLOADS = [
    {"name": "small", "dims": {"N": 96}, "weight": 3},
    "N=4099",
    {"dims": {"N": 512}, "options": {"dtype": "bf16"}, "weight": 2},
]
SETTINGS = {"templates": ["right"], "budget": {"trials": 3}, "seed": 1}


@pytest.fixture(scope="module")
def done(service):
    """A finished tuning of two groups: fp16 and bf16."""
    tuning = service.tune("axpy", WORKLOADS, **SETTINGS)
    return service.wait_for_tuning(tuning["id"], deadline_s=600)


@pytest.fixture(scope="module")
def path(service, done, tmp_path_factory):
    path = tmp_path_factory.mktemp("tuned") / "bundle.zip"
    service.download_tuning(done["id"], path)
    return path


def test_workloads_with_other_compile_time_values_have_a_search_of_their_own(done):
    assert done["status"] == "completed" and done["weights"] == [3.0, 1.0, 2.0]
    shapes = [search["workloads"] for search in done["searches"]]
    assert shapes == [["small(N=96)", "N=4099"], ["N=512,dtype=bf16"]]
    assert [search["weights"] for search in done["searches"]] == [[3.0, 1.0], []]


def test_the_weights_enter_the_time_of_a_trial(service, done):
    search = done["searches"][0]["id"]
    for number in (0, 1, 2):
        trial = service.trial(search, number)
        timings = trial["gates"]["performance"]["timings"]
        times = [timing["time_median_us"] for timing in timings]
        mean = (times[0] ** 3 * times[1]) ** (1 / 4)
        assert trial["time_median_us"] == pytest.approx(mean)
        assert [timing["weight"] for timing in timings] == [3.0, 1.0]


def test_the_winner_is_told_for_each_workload(service, done):
    detail = service.search(done["searches"][0]["id"])
    rows = {row["workload"]: row for row in detail["by_workload"]}
    assert list(rows) == ["small(N=96)", "N=4099"] and rows["small(N=96)"]["weight"] == 3.0
    for row in rows.values():
        assert row["time_kind"] == "modelled" and row["ratio_low"] is None
        assert row["ratio"] == pytest.approx(row["time_median_us"] / row["baseline_median_us"])
    assert service.search(done["searches"][1]["id"])["by_workload"] == []


def test_its_pages_show_the_table(service, done):
    for path in ("/tunings", f"/tunings/{done['id']}", f"/searches/{done['searches'][0]['id']}"):
        page = httpx.get(service.url + path, trust_env=False)
        assert page.status_code == 200
        assert done["id"] in page.text or "By workload" in page.text
    page = httpx.get(f"{service.url}/tunings/{done['id']}", trust_env=False).text
    assert "outside of the tuned sizes" in page and "all tuned sizes" in page
    for kernel, search in zip(("k0", "k1"), done["searches"], strict=True):
        assert f'<tr id="{kernel}">' in page and f'href="#{kernel}"' in page
        assert f'href="/searches/{search["id"]}/trials/' in page


def test_its_report_is_the_lab_note_of_all_its_searches(service, done):
    path = f"/tunings/{done['id']}/report"
    report = httpx.get(f"{service.url}/api/v1{path}", trust_env=False).json()
    assert [search["id"] for search in report["searches"]] == [
        search["id"] for search in done["searches"]
    ]
    assert report["title"].endswith(": 2 searches")
    for search in report["searches"]:
        trials = service.trials(search["id"])
        assert search["trials"] == len(trials)
        times = {trial["number"]: trial["time_median_us"] for trial in trials}
        assert all(stage["time_us"] == times[stage["number"]] for stage in search["stages"])
    page = httpx.get(service.url + path, trust_env=False).text
    note = httpx.get(f"{service.url}/api/v1{path}?form=markdown", trust_env=False).text
    for search in done["searches"]:
        assert search["id"] in page and f"{search['id']}/0" in note


def test_its_bundle_holds_what_a_launch_needs(path):
    tuning = open_tuning(path)
    assert {group.compiled for group in tuning.table.groups} == {
        (("dtype", "fp16"),),
        (("dtype", "bf16"),),
    }
    operation = tuning.manifest["kernel"]
    for kernel in tuning.manifest["kernels"]:
        launch = json.loads(tuning.files[f"kernels/{kernel['id']}/launch.json"])
        assert kernel["alignment"] == launch["alignment"]
        assert set(launch["alignment"]) == {
            each["name"] for each in launch["interface"] if each["kind"] in ("input", "output")
        }
        for workload in launch["workloads"]:
            # A runtime computes from the expressions what was tuned.
            values = {**launch["constants"], **workload["dims"]}
            for constant in operation["constants"]:
                values[constant["name"]] = expression(constant["value"], "test")(values)
            for entry, tuned in zip(launch["entries"], workload["launches"], strict=True):
                grid = [int(expression(text, "test")(values)) for text in entry["grid"]]
                assert (grid, entry["block"]) == (tuned["grid"], tuned["block"])
                assert entry["smem_dynamic_bytes"] == tuned["smem_dynamic_bytes"]
            named = [each["name"] for each in launch["interface"]]
            assert named == [each["name"] for each in workload["arguments"]]


def test_the_table_has_the_weights_of_the_file_also_where_a_group_has_equal_ones(path):
    weights = {
        workload.name: workload.weight
        for group in open_tuning(path).table.groups
        for workload in group.workloads
    }
    assert weights == {"small(N=96)": 3.0, "N=4099": 1.0, "N=512,dtype=bf16": 2.0}


def test_the_same_tuning_gives_the_same_bytes(service, done, path, tmp_path):
    service.download_tuning(done["id"], tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == path.read_bytes()
    with zipfile.ZipFile(path) as packed:
        readme = packed.read("README.txt").decode()
    assert "@" not in readme and f"tuning {done['id']}" in readme
    assert "all tuned sizes: k1" in readme


def test_its_bundle_is_verified_and_a_changed_one_is_not(path, here, tmp_path):
    ended = here.run("verify", str(path), "--json")
    assert ended.code == 0, ended.err
    items = {item["name"]: item["finding"] for item in ended.json["items"]}
    assert (
        items["dispatch"]
        == items["manifest"]
        == items["programs"]
        == items["k0 correctness"]
        == items["k1 safety"]
        == "agrees"
    )
    with zipfile.ZipFile(path) as packed:
        has_code = any(name.endswith(".cubin") for name in packed.namelist())
    assert items.get("k0 machine_code") == ("agrees" if has_code else None)


def test_machine_code_that_its_source_does_not_give_disagrees(path, here, tmp_path):
    """It would run in every program that loads the bundle, and all other items check the source."""

    def other_code(files):
        (name,) = (name for name in files if name.startswith("kernels/k0/") and "cubin" in name)
        sections = code_sections(files[name])
        code = max((data for key, data in sections.items() if key.startswith(".text")), key=len)
        place = files[name].index(code)
        image = files[name][:place] + bytes([code[0] ^ 1]) + files[name][place + 1 :]
        manifest = json.loads(files["manifest.json"])
        manifest["files"][name] = hashlib.sha256(image).hexdigest()
        return {name: image, "manifest.json": json.dumps(manifest).encode()}

    with zipfile.ZipFile(path) as packed:
        if not any(name.endswith(".cubin") for name in packed.namelist()):
            pytest.skip("the tuning's machine has no NVRTC")
    (tmp_path / "other.zip").write_bytes(repacked(path, other_code))
    ended = here.run("verify", str(tmp_path / "other.zip"), "--json")
    assert ended.code == 1, ended.err
    (item,) = (item for item in ended.json["items"] if item["name"] == "k0 machine_code")
    assert item["finding"] == "disagrees" and ".text." in item["sentence"]


def test_what_only_readers_of_the_format_use_is_compared_too(path, here, tmp_path):
    def changes(files):
        manifest, name = json.loads(files["manifest.json"]), "kernels/k0/launch.json"
        launch = json.loads(files[name])
        manifest["kernel"]["alignment"]["pointer_bytes"] = 1
        manifest["kernels"][0]["alignment"]["x"]["pointer_bytes"] = 1
        manifest["compile_options"].append("--use_fast_math")
        launch["workloads"][0]["launches"][0]["grid"] = [7, 1, 1]
        launch["alignment"]["y"]["pointer_bytes"] = 1
        added = {name: json.dumps(launch).encode(), "numpy.py": b"", "kernels/k9/kernel.cu": b""}
        for each, data in added.items():
            manifest["files"][each] = hashlib.sha256(data).hexdigest()
        return {**added, "manifest.json": json.dumps(manifest).encode()}

    (tmp_path / "other.zip").write_bytes(repacked(path, changes))
    ended = here.run("verify", str(tmp_path / "other.zip"), "--json")
    assert ended.code == 1, ended.err
    items = {item["name"]: (item["finding"], item["sentence"]) for item in ended.json["items"]}
    assert items["manifest"][0] == items["k0 launch"][0] == "disagrees"
    assert "other alignment and compile_options and alignment of k0 than" in items["manifest"][1]
    assert "other alignment and workloads than" in items["k0 launch"][1]
    assert items["programs"][0] == "cannot_tell"
    assert items["programs"][1].startswith("kernels/k9/kernel.cu, numpy.py: not as")


def repacked(path, changes):
    files = {}
    with zipfile.ZipFile(path) as packed:
        files = {name: packed.read(name) for name in packed.namelist()}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        for name, data in {**files, **changes(files)}.items():
            if data is not None:
                packed.writestr(name, data)
    return buffer.getvalue()


def test_no_file_of_a_bundle_is_written_where_a_template_s_name_leads(path, here, tmp_path):
    """`greenfast verify` wrote baseline_template.toml where baseline_launch.json led."""
    target = tmp_path / "anywhere"

    def named(files):
        manifest = json.loads(files["manifest.json"])
        launch = json.loads(files["kernels/k0/launch.json"]) | {"template": str(target)}
        added = {
            "kernels/k0/baseline_launch.json": json.dumps(launch).encode(),
            "kernels/k0/baseline.cu": files["kernels/k0/kernel.cu"],
            "kernels/k0/baseline_template.toml": b"",
            "kernels/k0/baseline_template.cu.j2": b"",
        }
        digests = {name: hashlib.sha256(data).hexdigest() for name, data in added.items()}
        manifest["files"] |= digests
        return {**added, "manifest.json": json.dumps(manifest).encode()}

    (tmp_path / "named.zip").write_bytes(repacked(path, named))
    ended = here.run("verify", str(tmp_path / "named.zip"), "--json")
    assert ended.code == 2 and ended.json["error"]["code"] == "bad_bundle"
    assert not list(tmp_path.glob("anywhere*"))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        (lambda files: {"kernels/k0/kernel.cu": b"// other"}, "bad_bundle"),
        (lambda files: {"kernels/k0/kernel.cu": None}, "bad_bundle"),
        (lambda files: {"kernels/../../evil": b"x"}, "bad_bundle"),
        (lambda files: {"more.txt": b"x"}, "bad_bundle"),
        (lambda files: {"manifest.json": b"{}"}, "bad_bundle"),
        (lambda files: {"manifest.json": b"[1"}, "bad_bundle"),
        (
            lambda files: {
                "manifest.json": files["manifest.json"].replace(b'"axpy"', b'"../axpy"')
            },
            "bad_bundle",
        ),
        (
            lambda files: {
                "manifest.json": files["manifest.json"].replace(
                    b'"cubins": {', b'"cubins": {"x": [],'
                )
            },
            "bad_bundle",
        ),
        (lambda files: {"dispatch.json": b"{}"}, "bad_bundle"),
    ],
)
def test_a_changed_bundle_is_refused(path, tmp_path, changes, code):
    changed = tmp_path / "changed.zip"
    changed.write_bytes(repacked(path, changes))
    with pytest.raises(UsageError) as refused:
        open_tuning(changed)
    assert refused.value.code == code and "\n" not in str(refused.value)


def test_all_wrong_workloads_are_named_at_once_and_nothing_is_queued(service):
    before = len(service._all("/api/v1/tunings", {}))
    wrong = [{"dims": {"N": 0}}, {"dims": {"N": 2**31 - 1}}, {"dims": {"M": 1}}, "N=7", "N=7"]
    with pytest.raises(ServiceError) as refused:
        service.tune("axpy", wrong)
    assert refused.value.status == 422 and refused.value.code == "bad_workloads"
    for part in ("N=0", "GiB of memory", "M is unknown", "has the values of N=7"):
        assert part in refused.value.message
    for weight in (0, -1):
        with pytest.raises(ServiceError) as refused:
            service.tune("axpy", [{"dims": {"N": 7}, "weight": weight}])
        assert refused.value.status == 422
    assert len(service._all("/api/v1/tunings", {})) == before


def test_an_unfinished_tuning_has_no_bundle_and_can_be_cancelled(service, tmp_path):
    tuning = service.tune("axpy", ["N=96"], **{**SETTINGS, "budget": {"trials": 500}})
    with pytest.raises(ServiceError) as refused:
        service.download_tuning(tuning["id"], tmp_path / "none.zip")
    assert (refused.value.status, refused.value.code) == (409, "tuning_not_complete")
    service.control_tuning(tuning["id"], "cancel")
    ended = service.wait_for_tuning(tuning["id"], deadline_s=60)
    assert ended["status"] in ("cancelled", "completed")
    with pytest.raises(ServiceError) as refused:
        service.tuning("t_aaaaaaaaaaaa")
    assert refused.value.status == 404


def test_a_killed_tune_continues_where_it_was(home, tmp_path):
    file = tmp_path / "mine.csv"
    file.write_text("name,weight,N,dtype\nsmall,3,96,fp16\nlarge,1,4099,bf16\n")
    arguments = ("tune", "axpy", "--workloads", str(file), "--template", "right", "--seed", "1")
    process = home.start(*arguments, "--trials", "3")
    said = ""
    while "1/3" not in said:
        said += (line := process.stderr.readline())
        assert line, said
    process.send_signal(signal.SIGKILL)
    process.wait()
    tuning = said.split("tuning ")[1].split(":")[0]
    out = tmp_path / "bundle.zip"
    ended = home.run("tune", "--resume", "last", "-o", str(out), "--json")
    assert ended.code == 0, ended.err
    assert ended.json["id"] == tuning and len(ended.json["searches"]) == 2
    assert open_tuning(out).manifest["time_kind"] == "modelled"
