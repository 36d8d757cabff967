"""The ancestors of a candidate: the view, REST, the page, and `greenfast show`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
import store_values as values
from fastapi.testclient import TestClient

from greenfast.app.cli.main import run
from greenfast.app.service.application import create_app
from greenfast.app.settings import Settings
from greenfast.app.views.lineage import MOST_ANCESTORS, lineage
from greenfast.app.wiring import Services
from greenfast.search.errors import UsageError
from greenfast.search.space.candidate import Candidate, Origin, OriginKind
from greenfast.search.strategies.base import Proposal

ELSEWHERE = "e" * 64
# The parents of each trial, by number.
PARENTS: tuple[tuple[int | str, ...], ...] = ((), (0,), (0, 1), (2, 1, ELSEWHERE))


@dataclass
class Family:
    services: Services
    search_id: str
    claim: object

    def add(self, number: int, parents: tuple[str, ...]) -> Candidate:
        trial = values.trial(number, values.accepted(number, 100.0 - number))
        kind = OriginKind.CROSSED if parents else OriginKind.SAMPLED
        candidate = replace(trial.candidate, origin=Origin(kind, parents))
        store = self.services.store
        store.begin(self.claim, number, Proposal(candidate, trial.sampler))
        store.record(self.claim, replace(trial, candidate=candidate), values.source(number))
        return candidate


@pytest.fixture
def family(tmp_path) -> Iterator[Family]:
    services = Services(Settings.from_environment({"GREENFAST_DATA": str(tmp_path)}))
    search = services.store.submit(values.plan())
    yield Family(services, search.id, services.store.claim("worker", values.LEASE_S))
    services.close()


@pytest.fixture
def four(family) -> Family:
    digests: list[str] = []
    for number, parents in enumerate(PARENTS):
        named = (each if isinstance(each, str) else digests[each] for each in parents)
        digests.append(family.add(number, tuple(named)).digest)
    return family


def test_each_ancestor_appears_once_in_its_nearest_generation(four):
    report = lineage(four.services.store, four.search_id, 3)
    assert [(each.generation, each.number) for each in report.items] == [
        (0, 3),
        (1, 1),
        (1, 2),
        (2, 0),
    ]
    assert report.complete
    winner = report.items[0]
    assert [parent.number for parent in winner.parents] == [2, 1, None]
    assert [(each.name, each.before, each.after) for each in winner.parents[0].changed] == [
        ("tile_m", 48, 64),
        ("padding", False, True),
    ]
    assert winner.parents[2].changed == [], "nothing is claimed of another search's candidate"


@pytest.mark.slow
def test_a_long_lineage_is_cut_and_says_so(family):
    parents: tuple[str, ...] = ()
    for number in range(MOST_ANCESTORS + 3):
        parents = (family.add(number, parents).digest,)
    report = lineage(family.services.store, family.search_id, MOST_ANCESTORS + 2)
    assert len(report.items) == MOST_ANCESTORS + 1 and not report.complete
    assert report.items[-1].number == 2 and report.items[-1].parents[0].number == 1
    assert [each.name for each in report.items[-1].parents[0].changed] == ["tile_m", "padding"]
    complete = lineage(family.services.store, family.search_id, MOST_ANCESTORS)
    assert len(complete.items) == MOST_ANCESTORS + 1 and complete.complete


def test_a_candidate_among_its_own_ancestors_ends_the_walk(family):
    """A parent that is tried only later, or the candidate itself."""
    later = values.candidate(1).digest
    family.add(0, (values.candidate(0).digest, later))
    family.add(1, (values.candidate(0).digest,))
    numbers = [each.number for each in lineage(family.services.store, family.search_id, 1).items]
    assert numbers.count(1) == 1 and len(numbers) == len(set(numbers))


@pytest.mark.slow
def test_page_rest_and_terminal_show_it(four, capsys, monkeypatch, tmp_path):
    path = f"/searches/{four.search_id}/trials/3"
    with TestClient(create_app(four.services), base_url="http://127.0.0.1") as client:
        answer = client.get(f"/api/v1{path}/lineage").json()
        assert [each["number"] for each in answer["items"]] == [3, 1, 2, 0]
        assert client.get(f"/api/v1{path}9/lineage").json()["code"] == "unknown_trial"
        page = client.get(f"{path}/lineage", headers={"accept": "text/html"}).text
        assert f'href="/searches/{four.search_id}/trials/0"' in page and "48 → 64" in page
        assert "of another search" in page
        for shown in (path, f"/searches/{four.search_id}"):
            assert f'{path}/lineage"' in client.get(shown, headers={"accept": "text/html"}).text
        founder = client.get(path[:-1] + "0", headers={"accept": "text/html"}).text
        assert "/lineage" not in founder, "a candidate without parents has no lineage to show"
    monkeypatch.setenv("GREENFAST_DATA", str(tmp_path))
    capsys.readouterr()
    assert run(["show", f"{four.search_id}/3"]) == 0
    shown = capsys.readouterr().out
    assert "tile_m 48 -> 64, padding false -> true (from trial 2)" in shown
    assert f"candidate {ELSEWHERE[:8]} of another search" in shown


def test_an_unknown_trial_is_refused(family):
    with pytest.raises(UsageError, match="has no trial 7"):
        lineage(family.services.store, family.search_id, 7)
