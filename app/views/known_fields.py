"""The fields that a route knows, in its query and at each place of its body."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any, get_args, get_origin

from fastapi.routing import APIRoute
from pydantic import BaseModel


def known_fields(route: object, place: Sequence[str]) -> list[str]:
    """The fields that are valid beside the unknown one at `place`, such as ("body", "budget", "x").

    Empty for a route of which nothing is known.
    """
    if not isinstance(route, APIRoute):
        return []
    if place[0] == "query":
        return list(query_names(route))
    models = [model for field in route.dependant.body_params for model in _models(_type(field))]
    for part in place[1:-1]:
        models = list(_inside(models, part))
    return list(dict.fromkeys(name for model in models for name in model.model_fields))


def query_names(route: APIRoute) -> dict[str, bool]:
    """A route's query parameters, or the fields of their model, and whether each may repeat."""
    names: dict[str, Any] = {}
    for field in route.dependant.query_params:
        models = list(_models(_type(field)))
        of_models = {name: info for model in models for name, info in model.model_fields.items()}
        names |= of_models or {field.alias: field.field_info}
    return {name: _is_several(info.annotation) for name, info in names.items()}


def _is_several(annotation: Any) -> bool:
    """Whether it takes several values, as `list[str] | None` does."""
    several = (list, tuple, set, frozenset)
    return get_origin(annotation) in several or any(map(_is_several, get_args(annotation)))


def _type(field: Any) -> Any:
    return field.field_info.annotation


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models in an annotation, such as that of `list[Workload | str] | None`."""
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def _inside(models: Sequence[type[BaseModel]], part: str) -> Iterator[type[BaseModel]]:
    """The models one step of a place further: a field's, or of a union's named member."""
    if part.isdecimal():
        yield from models
    for model in models:
        if model.__name__ == part:
            yield model
        elif part in model.model_fields:
            yield from _models(model.model_fields[part].annotation)
