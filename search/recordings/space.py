"""A recording as a space: its rows are the points, its values the only ones, and nothing else can be asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from greenfast.search.kernels.spec import Items, TemplateSpec
from greenfast.search.recordings.contents import Recording
from greenfast.search.space.candidate import complete_parameters
from greenfast.search.space.space import Space


class RecordedSpace(Space):
    """The recorded points of the swept template; the nearest of them stands in for any other."""

    def __init__(self, template: TemplateSpec, compiled: Items, recording: Recording) -> None:
        swept = [
            complete_parameters(template, dict(recording.parameters(one)), compiled)
            for one in recording.rows
            if one.template == template.name
        ]
        known = set(swept)
        super().__init__(_narrowed(template, swept), compiled, recording.heading.device)
        self._swept, self._known, self._name = (
            tuple(dict.fromkeys(swept)),
            known,
            recording.heading.name,
        )

    def why_not(self, parameters: Items) -> str | None:
        return (
            None
            if parameters in self._known
            else f"the recording {self._name} holds no such candidate"
        )

    def each_point(self) -> Iterator[Items]:
        return iter(self._swept)


def _narrowed(template: TemplateSpec, points: list[Items]) -> TemplateSpec:
    """The template with the recorded values only, and the presets among them."""
    held = {
        name: {dict(one)[name] for one in points}
        for name in (one.name for one in template.parameters)
    }
    parameters = []
    for one in template.parameters:
        values = tuple(value for value in one.values if value in held[one.name])
        default = one.default if one.default in values else values[0]
        parameters.append(replace(one, values=values, default=default))
    presets = tuple(
        one
        for one in template.presets
        if all(value in held[name] for name, value in one.parameters)
    )
    return replace(template, parameters=tuple(parameters), presets=presets)
