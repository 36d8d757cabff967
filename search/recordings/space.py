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
            complete_parameters(template, dict(recording.parameters(row)), compiled)
            for row in recording.rows
            if row.template == template.name
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
        name: {dict(point)[name] for point in points}
        for name in (parameter.name for parameter in template.parameters)
    }
    parameters = []
    for parameter in template.parameters:
        values = tuple(value for value in parameter.values if value in held[parameter.name])
        default = parameter.default if parameter.default in values else values[0]
        parameters.append(replace(parameter, values=values, default=default))
    presets = tuple(
        preset
        for preset in template.presets
        if all(value in held[name] for name, value in preset.parameters)
    )
    return replace(template, parameters=tuple(parameters), presets=presets)
