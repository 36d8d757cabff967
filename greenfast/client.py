"""A client of the service: submit a search, wait for it, download its winner."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from greenfast.search.errors import GreenfastError, UsageError
from greenfast.search.status import ENDED

JSON = dict[str, Any]
LOOK_S = 0.5  # between two looks at a search


class ServiceError(GreenfastError):
    """The service refused a request.

    `status` is the HTTP status; `code`, `message` and `mend` come from the response.
    """

    def __init__(self, status: int, problem: JSON) -> None:
        super().__init__(
            problem.get("detail") or f"HTTP {status}",
            code=problem.get("code", "http_error"),
            mend=problem.get("mend", ""),
        )
        self.status = status


class Client:
    """A connection to one service; also a context manager that closes it.

    Methods return the JSON of the REST API, whose fields `/api/v1/openapi.json` describes. They
    raise ServiceError when the service refuses a request, UsageError `not_a_service` when another
    program answers, and `httpx.TransportError` when none can be reached.
    """

    def __init__(self, url: str, token: str = "", *, timeout_s: float = 60.0) -> None:
        """`url`: `http://127.0.0.1:8741`. `token`: the service's GREENFAST_TOKEN, if it has one.

        `timeout_s`: seconds to wait for a connection, and for each part of a response.
        """
        headers = {"authorization": f"Bearer {token}"} if token else {}
        # The environment's proxies are ignored: the service is usually on this machine.
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout_s, trust_env=False)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the client cannot be used afterwards."""
        self._http.close()

    def wait_until_ready(self, deadline_s: float) -> None:
        """Return when the service is ready; UsageError when it is not within `deadline_s`."""
        end = time.monotonic() + deadline_s
        while True:
            try:
                self._json("GET", "/readyz")
                return
            except (httpx.TransportError, ServiceError) as error:
                if time.monotonic() > end:
                    raise UsageError(
                        f"no service answers at {self._http.base_url}: {error}",
                        code="no_service",
                        mend="start it with `greenfast serve`",
                    ) from error
            time.sleep(0.1)

    def submit(self, kernel: str, **fields: Any) -> JSON:
        """Queue a search and return it; `fields` as in POST /api/v1/searches.

        For example `submit("attention", workloads=["mission"], budget={"trials": 40})`.
        """
        return self._json("POST", "/api/v1/searches", json={"kernel": kernel, **fields})

    def search(self, search_id: str) -> JSON:
        """A search with its plan, status, counts and best candidate."""
        return self._json("GET", f"/api/v1/searches/{search_id}")

    def control(self, search_id: str, action: str) -> JSON:
        """`pause`, `resume` or `cancel` a search and return it."""
        return self._json("POST", f"/api/v1/searches/{search_id}/{action}")

    def wait(
        self,
        search_id: str,
        on_progress: Callable[[JSON], None] = lambda detail: None,
        deadline_s: float | None = None,
    ) -> JSON:
        """The search once it is completed, cancelled or failed.

        `on_progress` receives the search when its status or number of trials has changed. Raises
        UsageError after `deadline_s` seconds; the search continues.
        """
        end = None if deadline_s is None else time.monotonic() + deadline_s
        seen = None
        while True:
            detail = self.search(search_id)
            if (detail["status"], detail["trials_done"]) != seen:
                seen = detail["status"], detail["trials_done"]
                on_progress(detail)
            if detail["status"] in ENDED:
                return detail
            if end is not None and time.monotonic() > end:
                raise UsageError(
                    f"search {search_id} is still {detail['status']} after {deadline_s:g} s",
                    code="wait_timeout",
                )
            time.sleep(LOOK_S)

    def trials(self, search_id: str, **query: Any) -> list[JSON]:
        """All trials of a search; filters and order as in the API (`verdict="accepted"`)."""
        return self._all(f"/api/v1/searches/{search_id}/trials", query)

    def trial(self, search_id: str, number: int) -> JSON:
        """A trial with the evidence of every gate; `number` counts from 0."""
        return self._json("GET", f"/api/v1/searches/{search_id}/trials/{number}")

    def negatives(self, **query: Any) -> list[JSON]:
        """All valid negatives: ideas that were tried and did not help, with their evidence."""
        return self._all("/api/v1/negatives", query)

    def promote(self, search_id: str, number: int, *, replace: bool = False) -> JSON:
        """Make a confirmed winner the champion of its scope and return the champion.

        `replace`: even if it was not timed against the present champion.
        """
        return self._json(
            "POST",
            f"/api/v1/searches/{search_id}/trials/{number}/promote",
            params={"replace": replace},
        )

    def remove(self, search_id: str, number: int | None = None, *, dry_run: bool = False) -> JSON:
        """Remove a search, or one trial of an ended search, for good; return the counts.

        `dry_run`: only count.
        """
        trial = "" if number is None else f"/trials/{number}"
        return self._json(
            "DELETE", f"/api/v1/searches/{search_id}{trial}", params={"dry_run": dry_run}
        )

    def champions(self, **query: Any) -> list[JSON]:
        """All champions; filters as in the API."""
        return self._all("/api/v1/champions", query)

    def best(self, search_id: str) -> JSON:
        """The fastest correct candidate so far; ServiceError `no_best` while there is none."""
        return self._json("GET", f"/api/v1/searches/{search_id}/best")

    def source(self, digest: str) -> str:
        """The CUDA source of that digest; at least its first eight digits."""
        return self._get(f"/api/v1/sources/{digest}").text

    def download_bundle(self, search_id: str, path: Path) -> None:
        """Write the best candidate's bundle, a zip file, to `path`."""
        path.write_bytes(self._get(f"/api/v1/searches/{search_id}/bundle").content)

    def tune(self, kernel: str, workloads: list[Any], **fields: Any) -> JSON:
        """Queue a tuning and return it; `fields` as in POST /api/v1/tunings."""
        body = {"kernel": kernel, "workloads": workloads, **fields}
        return self._json("POST", "/api/v1/tunings", json=body)

    def tuning(self, tuning_id: str) -> JSON:
        """A tuning with its status and its searches."""
        return self._json("GET", f"/api/v1/tunings/{tuning_id}")

    def control_tuning(self, tuning_id: str, action: str) -> JSON:
        """`pause`, `resume` or `cancel` all searches of a tuning and return it."""
        return self._json("POST", f"/api/v1/tunings/{tuning_id}/{action}")

    def wait_for_tuning(self, tuning_id: str, deadline_s: float | None = None) -> JSON:
        """The tuning once all its searches have ended."""
        for search in self.tuning(tuning_id)["searches"]:
            self.wait(search["id"], deadline_s=deadline_s)
        return self.tuning(tuning_id)

    def download_tuning(self, tuning_id: str, path: Path) -> None:
        """Write the bundle of a completed tuning, a zip file, to `path`."""
        path.write_bytes(self._get(f"/api/v1/tunings/{tuning_id}/bundle").content)

    def _all(self, url: str, query: JSON) -> list[JSON]:
        items: list[JSON] = []
        cursor = None
        while True:
            page = self._json(
                "GET", url, params={**query, "limit": 500, **({"cursor": cursor} if cursor else {})}
            )
            items += page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                return items

    def _get(self, url: str) -> httpx.Response:
        return _checked(self._http.get(url))

    def _json(self, method: str, url: str, **arguments: Any) -> JSON:
        response = _checked(self._http.request(method, url, **arguments))
        try:
            value: JSON = response.json()
        except ValueError as error:
            raise UsageError(
                f"{self._http.base_url} answers, but not with JSON",
                code="not_a_service",
                mend="give the URL that `greenfast serve` prints",
            ) from error
        return value


def _checked(response: httpx.Response) -> httpx.Response:
    if response.is_success:
        return response
    try:
        problem = response.json()
    except ValueError:
        problem = {}
    raise ServiceError(response.status_code, problem if isinstance(problem, dict) else {})
