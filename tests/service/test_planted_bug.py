"""A barrier missing after P is rejected, and the trial's page shows the evidence."""

from __future__ import annotations

import html
import shutil
import tomllib

import httpx
import pytest
from service_home import KERNELS

from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, load_kernel


@pytest.mark.slow
def test_a_missing_barrier_after_p_is_rejected_with_its_evidence_on_the_page(home, tmp_path):
    patch = next(
        patch
        for patch in tomllib.loads((KERNELS / "album.toml").read_text())["patch"]
        if patch["name"] == "no_barrier_after_p"
    )
    folder = tmp_path / "templates" / "attention"
    shutil.copytree(REPOSITORY_TEMPLATES / "attention", folder)
    text = load_kernel(folder).template("wmma").text
    assert text.count(patch["old"]) == 1
    # Beside the right template, as somebody who tries to save a barrier would have it.
    (folder / "no_barrier.cu.j2").write_text(text.replace(patch["old"], patch["new"]))
    (folder / "no_barrier.toml").write_text(
        (folder / "wmma.toml").read_text().replace('name = "wmma"', 'name = "no_barrier"')
    )
    done = home.run(
        "search",
        "attention",
        "--workload",
        "mission",
        "--template",
        "no_barrier",
        "--trials",
        "3",
        "--strategy",
        "random",
        "--seed",
        "1",
        "--json",
        GREENFAST_TEMPLATE_PATH=str(tmp_path / "templates"),
    )
    report = done.json
    assert report["status"] == "completed", report
    _, url = home.serve("--workers", "0", GREENFAST_TEMPLATE_PATH=str(tmp_path / "templates"))
    with httpx.Client(base_url=url, trust_env=False) as client:
        trials = client.get(f"/api/v1/searches/{report['id']}/trials").json()["items"]
        assert trials[0]["verdict"] == "green" and trials[0]["is_baseline"]
        rejected = [trial for trial in trials[1:] if trial["verdict"] == "rejected"]
        assert len(rejected) == 2 and {trial["stage"] for trial in rejected} == {"correctness"}
        trial = client.get(f"/api/v1/searches/{report['id']}/trials/{rejected[0]['number']}").json()
        failed = [check for check in trial["gates"]["correctness"]["checks"] if not check["passed"]]
        page = html.unescape(
            client.get(f"/searches/{report['id']}/trials/{rejected[0]['number']}").text
        )
        assert failed and failed[0]["sentence"] in page
        assert (
            trial["probe"].startswith("greenfast probe attention --template no_barrier")
            and trial["probe"] in page
        )
        assert client.get(f"/api/v1/searches/{report['id']}/trials/0").json()["probe"] == ""
        negatives = client.get("/api/v1/negatives", params={"search_id": report["id"]}).json()[
            "items"
        ]
        assert {negative["number"] for negative in negatives} == {
            trial["number"] for trial in rejected
        }
        best = client.get(f"/api/v1/searches/{report['id']}/best").json()
        assert best["number"] == 0 and best["beats_baseline"] is False
