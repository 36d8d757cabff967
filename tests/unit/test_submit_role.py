"""The role of the token that may submit sources: the guard in front of a stub application."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from starlette.responses import PlainTextResponse

from greenfast.app.routes.auth import Guard, cookie_value
from greenfast.app.routes.submissions_access import Rate
from greenfast.app.settings import Settings
from greenfast.search.errors import UsageError

ORDINARY, SUBMIT = "an-ordinary-token-1", "a-submitting-token-2"
PATH = "/api/v1/submissions"


def answers(settings, method, path, token="", cookie=""):
    headers = {"authorization": f"Bearer {token}"} if token else {}
    if cookie:
        headers["cookie"] = f"greenfast_session={cookie}"

    async def asked():
        transport = httpx.ASGITransport(Guard(PlainTextResponse("in"), settings))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.request(method, path, headers=headers)

    with ThreadPoolExecutor(1) as pool:  # a browser's test may have left a loop in this thread
        answer = pool.submit(asyncio.run, asked()).result()
    return answer.status_code, "" if answer.status_code == 200 else answer.json()["code"]


@pytest.mark.parametrize(
    "token, method, path, expected",
    [
        (ORDINARY, "POST", PATH, (403, "role_missing")),
        (ORDINARY, "POST", PATH + "/", (403, "role_missing")),
        (ORDINARY, "GET", PATH, (200, "")),
        (ORDINARY, "POST", "/api/v1/searches", (200, "")),
        (SUBMIT, "POST", PATH, (200, "")),
        (SUBMIT, "GET", "/api/v1/searches", (200, "")),
        (SUBMIT, "POST", "/api/v1/searches", (403, "role_missing")),
        (SUBMIT, "POST", "/api/v1/searches/s_aaaaaaaaaaaa/cancel", (403, "role_missing")),
        ("a-guessed-token-345", "POST", PATH, (401, "unauthorised")),
        ("", "POST", PATH, (401, "unauthorised")),
    ],
)
def test_each_token_has_its_role(token, method, path, expected):
    settings = Settings(token=ORDINARY, submit_token=SUBMIT)
    assert answers(settings, method, path, token) == expected


def test_a_browser_that_is_logged_in_submits_nothing():
    settings = Settings(token=ORDINARY, submit_token=SUBMIT)
    cookie = cookie_value(ORDINARY)
    assert answers(settings, "POST", PATH, cookie=cookie) == (403, "role_missing")
    assert answers(settings, "GET", PATH, cookie=cookie) == (200, "")


def test_without_its_token_a_service_with_a_token_takes_no_sources():
    assert answers(Settings(token=ORDINARY), "POST", PATH, ORDINARY) == (403, "submissions_off")


def test_without_any_token_loopback_is_open_unless_the_role_is_set():
    assert answers(Settings(), "POST", PATH) == (200, "")
    assert answers(Settings(submit_token=SUBMIT), "POST", PATH) == (403, "role_missing")
    assert answers(Settings(submit_token=SUBMIT), "POST", PATH, SUBMIT) == (200, "")


@pytest.mark.parametrize("token", ["short", ORDINARY, "with a blank inside it"])
def test_a_weak_token_or_that_of_everything_is_refused(token):
    with pytest.raises(UsageError) as refusal:
        Settings(token=ORDINARY, submit_token=token).checked()
    assert refusal.value.code == "weak_token" and token not in str(refusal.value)


def test_a_rate_ends_at_its_limit():
    rate = Rate(most=2)
    assert [rate.allows() for _ in range(3)] == [True, True, False]
