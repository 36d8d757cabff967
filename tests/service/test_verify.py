"""verify: agreement, disagreement or no answer; no code of a bundle runs without consent."""

from __future__ import annotations

import hashlib
import io
import json
import math
import random
import subprocess
import sys
import zipfile

import pytest
from service_home import axpy, one_sentence
from slow_cases import quick_first

from greenfast.app.bundle.download import zip_bytes
from greenfast.app.bundle.opened import OpenedBundle
from greenfast.app.bundle.verify import Finding, compare_times, recorded_runs
from greenfast.search.errors import UsageError
from greenfast.search.verdict import TimeKind, Timing

# What run_cupy.py does with reference.py, by a Python that knows the bundle's folder only.
ALONE = """
import json, reference
one = json.load(open("launch.json"))["workloads"][0]
inputs = reference.make_inputs(one["dims"], one["options"], "normal", 1, one["tiles"])
for name, found in reference.reference(one["dims"], one["options"], inputs).items():
    print(name, list(found["value"].shape))
"""


@pytest.fixture(scope="module")
def bundle(service):
    """The files of a right trial that is not the baseline."""
    row = service.submit(**axpy(workloads=["line"]))
    row = service.wait(row["id"], deadline_s=600)
    return downloaded(service, row, 1)


@pytest.fixture(scope="module")
def fp8_bundle(service):
    """The files of a kernel's trial whose reference.py builds on another kernel's."""
    row = service.submit("attention_fp8", workloads=["d32"], budget={"trials": 1}, seed=1)
    return downloaded(service, service.wait(row["id"], deadline_s=600), 0)


def downloaded(service, row, trial):
    content = service._get(f"/api/v1/searches/{row['id']}/bundle?trial={trial}").content
    with zipfile.ZipFile(io.BytesIO(content)) as packed:
        return {name: packed.read(name) for name in packed.namelist()}


def summed(files):
    """The same with sums that are right."""
    rest = {name: data for name, data in files.items() if name != "SHA256SUMS"}
    sums = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in rest.items())
    return {**rest, "SHA256SUMS": sums.encode()}


def verify(home, content: bytes, *options, **environment):
    home.data.mkdir(exist_ok=True)
    (home.data / "bundle.zip").write_bytes(content)
    return home.run("verify", "bundle.zip", "--target", "emulator:h200", *options, **environment)


def test_a_bundle_agrees_on_new_seeds_without_a_database(home, bundle):
    (home.data / "greenfast.sqlite3").unlink()
    ended = verify(home, zip_bytes(bundle), "--json")
    assert ended.code == 0, ended.err
    assert ended.json["finding"] == "agrees" and {
        item["name"]: item["finding"] for item in ended.json["items"]
    } == {
        "files": "agrees",
        "programs": "agrees",
        "compile": "agrees",
        "machine_code": "agrees",
        "launch": "agrees",
        "baseline": "agrees",
        "correctness": "agrees",
        "safety": "agrees",
        "time": "not_rechecked",
    }
    assert not list(home.data.glob("*.sqlite3*"))


def test_a_kernel_that_is_wrong_disagrees(home, bundle):
    wrong = {name: data for name, data in bundle.items() if not name.endswith(".cubin")}
    launch = json.loads(wrong["launch.json"])
    for name in ("kernel.cu", "template.cu.j2"):
        assert b"(a * gf" in bundle[name], "the album's kernel has changed"
        wrong[name] = bundle[name].replace(b"(a * gf", b"(-a * gf")
    launch["source_digest"] = hashlib.sha256(wrong["kernel.cu"]).hexdigest()
    wrong["launch.json"] = json.dumps(launch).encode()
    ended = verify(home, zip_bytes(summed(wrong)), "--trust", "--json")
    assert ended.code == 1, ended.out + ended.err
    assert ended.json["finding"] == "disagrees" and ended.json["items"][-1]["name"] == "correctness"
    assert "within" in ended.json["items"][-1]["sentence"]


@pytest.mark.parametrize("key", quick_first(["block", "smem_dynamic_bytes", "sm_count"], 1))
def test_a_launch_that_the_template_does_not_give_disagrees(home, bundle, key):
    """It is what programs launch that load the bundle, and whoever changed it wrote its hash."""
    launch = json.loads(bundle["launch.json"])
    changed = {"block": ["7", "1", "1"], "smem_dynamic_bytes": "64", "sm_count": 0}[key]
    (launch if key == "sm_count" else launch["launches"][0])[key] = changed
    other = summed({**bundle, "launch.json": json.dumps(launch).encode()})
    ended = verify(home, zip_bytes(other), "--json")
    assert ended.code == 1, ended.out + ended.err
    assert ended.json["items"][-1]["name"] == "launch"
    assert "launch.json has" in ended.json["items"][-1]["sentence"]


def forged(bundle, file: str, old: bytes, new: bytes):
    """A bundle with one text changed, and sums to match."""
    assert old in bundle[file], "the album's kernel has changed"
    return summed({**bundle, file: bundle[file].replace(old, new)})


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        # Sizes of checks follow from tiles: on one element, a grid of one block is right.
        ("template.toml", b'tile_q = "threads * per_thread"', b'tile_q = "1"'),
        # What a stride is, or which argument is compared, is for kernel.toml to say.
        ("kernel.toml", b'value = "N"', b'value = "N + 0"'),
    ],
)
def test_a_bundle_does_not_choose_how_it_is_judged(home, bundle, file, old, new):
    other = forged(bundle, file, old, new)
    ended = verify(home, zip_bytes(other), "--json")
    assert ended.code == 2 and ended.json["error"]["code"] == "untrusted_bundle"
    assert f"would go by {file} of the bundle" in one_sentence(ended)
    assert verify(home, zip_bytes(other), "--trust").code == 0


def test_a_baseline_that_was_made_slower_cannot_be_told(home, bundle):
    """The bundle's times are ratios to it."""
    launch = json.loads(bundle["baseline_launch.json"])
    slower = bundle["baseline.cu"] + b"// slower\n"
    launch["source_digest"] = hashlib.sha256(slower).hexdigest()
    changed = {"baseline.cu": slower, "baseline_launch.json": json.dumps(launch).encode()}
    ended = verify(home, zip_bytes(summed({**bundle, **changed})), "--json")
    assert ended.code == 2 and ended.json["finding"] == "cannot_tell"
    (item,) = (item for item in ended.json["items"] if item["name"] == "baseline")
    assert "another text than baseline.cu" in item["sentence"]
    ended = verify(home, zip_bytes(summed({**bundle, "baseline.cu": slower})), "--json")
    assert ended.json["error"]["code"] == "bad_bundle"


def test_a_workload_that_is_smaller_than_ours_of_that_name_disagrees(home, bundle):
    """The small one could be all that the kernel is right for."""
    other = forged(bundle, "kernel.toml", b"{ N = 4096 }", b"{ N = 64 }")
    launch = json.loads(other["launch.json"])
    launch["workloads"][0]["dims"]["N"] = 64
    other = summed({**other, "launch.json": json.dumps(launch).encode()})
    ended = verify(home, zip_bytes(other), "--json")
    assert ended.code == 1 and ended.json["items"][-1]["name"] == "launch"
    assert "other workloads" in ended.json["items"][-1]["sentence"]


def test_programs_that_greenfast_does_not_write_are_named(home, bundle):
    """A reader runs them, and their hashes are those that a forger wrote."""
    other = summed({**bundle, "run_cupy.py": b"import os", "setup.py": b"", "launch.h": b""})
    ended = verify(home, zip_bytes(other), "--json")
    assert ended.code == 2 and ended.json["finding"] == "cannot_tell"
    (programs,) = (item for item in ended.json["items"] if item["name"] == "programs")
    assert programs["sentence"].startswith("launch.h, run_cupy.py, setup.py: not as this version")


def test_a_template_that_gives_another_text_cannot_be_told(home, bundle):
    other = summed({**bundle, "template.cu.j2": bundle["template.cu.j2"] + b"// more\n"})
    ended = verify(home, zip_bytes(other), "--trust", "--json")
    assert ended.code == 2 and ended.json["finding"] == "cannot_tell"


def test_foreign_code_is_refused_and_not_run_unless_it_is_trusted(home, bundle):
    mark = home.data / "it_ran"
    foreign = summed(
        {
            **bundle,
            "reference.py": bundle["reference.py"]
            + f"\nopen({str(mark)!r}, 'w').close()\n".encode(),
        }
    )
    ended = verify(home, zip_bytes(foreign), "--json")
    assert (
        ended.code == 2
        and ended.json["error"]["code"] == "untrusted_bundle"
        and "reference.py" in one_sentence(ended)
    )
    assert not mark.exists()
    assert verify(home, zip_bytes(foreign), "--trust").code == 0 and mark.exists()


@pytest.mark.slow  # a search of attention_fp8, and three verifications of it
def test_what_the_reference_builds_on_is_carried_and_is_held_to_be_ours_like_the_reference(
    home, fp8_bundle, tmp_path
):
    for name, data in fp8_bundle.items():
        (tmp_path / name).write_bytes(data)
    alone = subprocess.run(
        [sys.executable, "-c", ALONE],
        cwd=tmp_path,
        env={},
        capture_output=True,
        text=True,
        check=False,
    )
    assert alone.stdout == "o [2, 8, 256, 32]\nlse [2, 8, 256]\n", alone.stderr
    ended = verify(home, zip_bytes(fp8_bundle), "--json")
    assert ended.code == 0 and ended.json["finding"] == "agrees", ended.out + ended.err
    name, mark = "attention_reference.py", home.data / "it_ran"
    foreign = summed(
        {**fp8_bundle, name: fp8_bundle[name] + f"\nopen({str(mark)!r}, 'w').close()\n".encode()}
    )
    ended = verify(home, zip_bytes(foreign), "--json")
    assert ended.json["error"][
        "code"
    ] == "untrusted_bundle" and f"would run {name} of the bundle" in one_sentence(ended)
    lacking = summed({item: data for item, data in fp8_bundle.items() if item != name})
    ended = verify(home, zip_bytes(lacking), "--trust", "--json")
    assert (
        ended.json["error"]["code"] == "bad_bundle"
        and f"lacks {name}" in one_sentence(ended)
        and not mark.exists()
    )
    assert verify(home, zip_bytes(foreign), "--trust").code == 0 and mark.exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda files: {**files, "kernel.cu": files["kernel.cu"] + b"\n"},
            "kernel.cu does not match SHA256SUMS",
        ),
        (
            lambda files: summed({**files, "kernel.cu": files["kernel.cu"] + b"\n"}),
            "not the source whose digest launch.json names",
        ),
        (lambda files: {**files, "more.txt": b""}, "do not match: more.txt"),
        (lambda files: summed({**files, "../../up": b""}), "a file named '../../up'"),
        (lambda files: summed({**files, "/etc/x": b""}), "a file named '/etc/x'"),
        (lambda files: summed({**files, "zeros": bytes(40 * 2**20)}), "too large"),
        (lambda files: summed({**files, **{f"f{i}": b"" for i in range(64)}}), "at most 64"),
        (
            lambda files: {name: data for name, data in files.items() if name != "launch.json"},
            "it lacks launch.json",
        ),
        (lambda files: summed({**files, "launch.json": b"[]"}), "not a JSON object"),
        (
            lambda files: summed(
                {**files, "launch.json": b'{"schema": 1, "kernel": "../x", "template": "t"}'}
            ),
            "lacks a kernel",
        ),
        (
            lambda files: summed({**files, "launch.json": b'{"schema": 7}'}),
            "this version reads schema 1",
        ),
    ],
)
def test_what_is_no_bundle_is_refused(tmp_path, bundle, change, message):
    from greenfast.app.bundle.opened import open_bundle
    from greenfast.search.errors import UsageError

    (tmp_path / "b.zip").write_bytes(zip_bytes(change(bundle)))
    with pytest.raises(UsageError, match=message) as refused:
        open_bundle(tmp_path / "b.zip")
    assert refused.value.code == "bad_bundle"


def test_a_file_that_is_no_zip_and_one_that_is_not_there(home):
    ended = verify(home, b"PK\x03\x04 but no", "--json")
    assert ended.code == 2 and ended.json["error"]["code"] == "bad_bundle"
    assert home.run("verify", "none.zip", "--json").json["error"]["code"] == "missing_bundle"


def timing(ratio: float, seed: int, noise: float = 0.002) -> tuple[Timing, ...]:
    chance = random.Random(seed)
    base = [10.0 * math.exp(chance.gauss(0, noise)) for _ in range(80)]
    ours = [10.0 * ratio * math.exp(chance.gauss(0, noise)) for _ in range(80)]
    return (
        Timing(
            "line",
            10.0 * ratio,
            TimeKind.MEASURED,
            "",
            samples=tuple(ours),
            baseline_samples=tuple(base),
        ),
    )


def runs(ratio, noise=0.002):
    return [timing(ratio * (1 + 0.004 * place), 10 + place, noise) for place in (-1, 0, 1)]


def test_times_agree_within_what_processes_differ_by_and_disagree_beyond():
    assert compare_times([timing(0.8, 1)], runs(0.8))[0] is Finding.AGREES
    assert compare_times([timing(0.8, 1)], runs(0.808))[0] is Finding.AGREES
    for other in (0.72, 0.88):
        finding, sentence = compare_times([timing(0.8, 1)], runs(other))
        assert finding is Finding.DISAGREES and "0.8" in sentence
    assert (
        compare_times([timing(0.8, 1, noise=0.3)], runs(0.8, noise=0.3))[0] is Finding.CANNOT_TELL
    )


def test_a_confirmation_is_what_times_are_compared_with_when_there_is_one():
    from greenfast.app.bundle.opened import OpenedBundle
    from greenfast.app.bundle.verify import recorded_runs

    search = {
        "gates": {
            "performance": {
                "timings": [
                    {
                        "workload": "line",
                        "time_median_us": 9.0,
                        "time_kind": "measured",
                        "samples": [9.0] * 16,
                        "baseline_samples": [10.0] * 16,
                    }
                ]
            }
        }
    }
    again = {
        "comparisons": [
            {"against": "runner-up", "processes": []},
            {
                "against": "baseline",
                "processes": [
                    {
                        "timings": [
                            {
                                "workload": "line",
                                "time_median_us": 8.0,
                                "samples": [8.0] * 80,
                                "other_samples": [10.0] * 80,
                            }
                        ]
                    }
                ]
                * 3,
            },
        ]
    }
    for evidence, count, time_us in (
        ({"candidate": search, "confirmation": again}, 3, 8.0),
        ({"candidate": search, "confirmation": None}, 1, 9.0),
        ({"candidate": None}, 0, 0),
    ):
        runs = recorded_runs(OpenedBundle({}, {}, None, evidence, {}))
        assert len(runs) == count and all(run[0].time_median_us == time_us for run in runs)


TIMES = {
    "workload": "w",
    "time_kind": "measured",
    "time_median_us": 8.0,
    "samples": [8.0, 8.0],
    "baseline_samples": [9.0, 9.0],
}


@pytest.mark.parametrize(
    "evidence",
    [
        {"confirmation": {"comparisons": [{"against": "baseline", "processes": 5}]}},
        {"confirmation": {"comparisons": [{}]}},
        {"confirmation": 7},
        {"candidate": {"gates": []}},
        {"candidate": {"gates": {"performance": {"timings": [7]}}}},
        {"candidate": {"gates": {"performance": {"timings": [{**TIMES, "samples": [8.0, 0.0]}]}}}},
        {"candidate": {"gates": {"performance": {"timings": [{**TIMES, "weight": math.inf}]}}}},
    ],
)
def test_evidence_of_another_form_is_a_damaged_bundle(evidence):
    bundle = OpenedBundle({}, {}, None, evidence, {})
    with pytest.raises(UsageError, match=r"evidence\.json holds no times") as refused:
        recorded_runs(bundle)
    assert refused.value.code == "bad_bundle"
