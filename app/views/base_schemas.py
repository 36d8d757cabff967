"""The bases of all models of requests and responses, and of errors."""

from __future__ import annotations

from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

Item = TypeVar("Item")
ScalarValue = int | float | bool | str


class Output(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class Input(BaseModel):
    """Types are strict ("3" is not 3), and unknown fields are refused."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class Page(Output, Generic[Item]):
    items: list[Item]
    next_cursor: str | None = Field(
        description="pass it as `cursor` to get the next page; null on the last page"
    )


class WrongField(Output):
    field: str = Field(description="as in the request, such as budget.trials")
    detail: str
    code: str
    mend: str


class Problem(Output):
    """An error as application/problem+json (RFC 9457)."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    code: str = Field(description="stable, for programs")
    mend: str = Field(description="how to correct it; may be empty")
    errors: list[WrongField] = Field(
        [], description="every wrong field of a request, the first one included"
    )
