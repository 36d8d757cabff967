"""A small client of the service: submit, wait, download."""

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
LOOK_S = 0.5


class ServiceError(GreenfastError):
    """The service said no: its own code, sentence and mend, and the HTTP status."""

    def __init__(self, status: int, problem: JSON) -> None:
        super().__init__(
            problem.get("detail") or f"HTTP {status}",
            code=problem.get("code", "http_error"),
            mend=problem.get("mend", ""),
        )
        self.status = status


class Client:
    """Talks to one service; `token` when it asks for one."""

    def __init__(self, url: str, token: str = "", *, timeout_s: float = 60.0) -> None:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        # A proxy of the environment is not asked: the service is this machine's, or named on purpose.
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
        self._http.close()

    def wait_until_ready(self, deadline_s: float) -> None:
        """Until the service answers; UsageError when it does not."""
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
        """Queue a search; fields as in POST /api/v1/searches."""
        return self._json("POST", "/api/v1/searches", json={"kernel": kernel, **fields})

    def search(self, search_id: str) -> JSON:
        return self._json("GET", f"/api/v1/searches/{search_id}")

    def control(self, search_id: str, wanted: str) -> JSON:
        """`pause`, `resume` or `cancel`."""
        return self._json("POST", f"/api/v1/searches/{search_id}/{wanted}")

    def wait(
        self,
        search_id: str,
        on_progress: Callable[[JSON], None] = lambda detail: None,
        deadline_s: float | None = None,
    ) -> JSON:
        """Until the search has ended; `on_progress` is called whenever another trial is done."""
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
        """All trials, over all pages; filters and sort as in the API."""
        return self._all(f"/api/v1/searches/{search_id}/trials", query)

    def trial(self, search_id: str, number: int) -> JSON:
        return self._json("GET", f"/api/v1/searches/{search_id}/trials/{number}")

    def negatives(self, **query: Any) -> list[JSON]:
        return self._all("/api/v1/negatives", query)

    def promote(self, search_id: str, number: int, *, replace: bool = False) -> JSON:
        """Make the confirmed winner the champion of its scope."""
        return self._json(
            "POST",
            f"/api/v1/searches/{search_id}/trials/{number}/promote",
            params={"replace": replace},
        )

    def champions(self, **query: Any) -> list[JSON]:
        return self._all("/api/v1/champions", query)

    def best(self, search_id: str) -> JSON:
        return self._json("GET", f"/api/v1/searches/{search_id}/best")

    def source(self, digest: str) -> str:
        return self._get(f"/api/v1/sources/{digest}").text

    def download_bundle(self, search_id: str, path: Path) -> None:
        path.write_bytes(self._get(f"/api/v1/searches/{search_id}/bundle").content)

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
        return _checked(self._http.request(method, url, **arguments)).json()


def _checked(response: httpx.Response) -> httpx.Response:
    if response.is_success:
        return response
    try:
        problem = response.json()
    except ValueError:
        problem = {}
    raise ServiceError(response.status_code, problem if isinstance(problem, dict) else {})
