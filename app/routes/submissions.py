"""Submissions: a source is judged like a candidate; its verdict, and feedback by line."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse

from greenfast.app.routes.access import TheServices
from greenfast.app.routes.submissions_access import MOST_WAITING, RETRY_AFTER_S, Rate
from greenfast.app.views.base_schemas import Page, Problem
from greenfast.app.views.problems import problem_response
from greenfast.app.views.schemas import SearchOut
from greenfast.app.views.submission_schemas import SubmissionIn, SubmissionOut, SubmissionsQuery
from greenfast.app.views.submitting import JudgeRequest, submission_report, submit_source
from greenfast.search.loop.submitted import Submission

router = APIRouter(prefix="/submissions", tags=["submissions"])
_rate = Rate()


@router.post(
    "",
    status_code=201,
    response_model=SubmissionOut,
    responses={
        200: {"model": SubmissionOut, "description": "judged before, or being judged"},
        429: {
            "model": Problem,
            "description": "too many submissions",
            "content": {"application/problem+json": {}},
        },
    },
)
def submit(
    body: SubmissionIn, response: Response, services: TheServices
) -> SubmissionOut | JSONResponse:
    """Queue a source for judgement. The same source in the same scope is not judged twice.

    403 `role_missing` or `submissions_off` without the role; 429 `too_many_submissions`.
    """
    if not _rate.allows() or services.store.waiting_submissions() >= MOST_WAITING:
        refusal = problem_response(
            429,
            "too_many_submissions",
            "too many sources were submitted in the last minute, or wait for a worker",
            f"try again in {RETRY_AFTER_S} s",
        )
        refusal.headers["retry-after"] = str(RETRY_AFTER_S)
        return refusal
    submission = Submission(
        body.kernel,
        body.source,
        body.launch,
        body.entry,
        body.author,
        body.model,
        body.parent,
        body.hypothesis,
    )
    workloads = tuple(body.workloads) if body.workloads else None
    ticket = submit_source(
        services, JudgeRequest(submission, workloads, body.target, body.baseline, body.seed)
    )
    response.headers["location"] = f"/api/v1/submissions/{ticket.search_id}"
    if ticket.repeated:
        response.status_code = 200
    report = submission_report(services, ticket.search_id, repeated=ticket.repeated)
    return SubmissionOut.model_validate(report)


@router.get("")
def submissions(
    query: Annotated[SubmissionsQuery, Query()], services: TheServices
) -> Page[SearchOut]:
    """The searches that judge sources, newest first."""
    page = services.store.submissions(
        services.known_kernel(query.kernel), limit=query.limit, cursor=query.cursor
    )
    return Page(
        items=[SearchOut.model_validate(row) for row in page.items], next_cursor=page.next_cursor
    )


@router.get("/{submission}")
def submission(submission: str, services: TheServices) -> SubmissionOut:
    """The verdict with its feedback; /searches/{id}/events streams its progress."""
    return SubmissionOut.model_validate(submission_report(services, submission))
