"""The words that can complete an unfinished command line.

Shells insert a completion as it is, and would execute a name such as `$(reboot)`. Only words of
harmless characters are therefore offered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, get_type_hints

from greenfast.app.cli.commands import SECTIONS, Command
from greenfast.app.settings import Settings
from greenfast.search.errors import GreenfastError
from greenfast.search.text import one_line, shortened

HARMLESS = re.compile(r"[A-Za-z0-9_./:=,@%+-]+")
LONGEST_TEXT = 70
MOST = 200
Offer = tuple[str, str]  # a word, and what it means


def completions(words: Sequence[str]) -> list[Offer]:
    """Words that begin like the last of `words`, which follow `greenfast`. Errors offer nothing."""
    *before, unfinished = words or ("",)
    try:
        offers = [
            (value, shortened(one_line(text), LONGEST_TEXT))
            for value, text in _offers(before, unfinished)
            if value.startswith(unfinished) and HARMLESS.fullmatch(value)
        ]
    except (GreenfastError, OSError):
        return []
    return list(dict(offers[:MOST]).items())


def _offers(before: Sequence[str], unfinished: str) -> Iterable[Offer]:
    if not before:
        return _commands(unfinished)
    command = next((c for c in _all_commands() if c.name == before[0]), None)
    if command is None:
        return ()
    parameters = command.load().params
    choices = _choices_of(command)
    options = {
        name: option for option in parameters for name in (*option.opts, *option.secondary_opts)
    }
    given, positional, awaited = before[1:], 0, None
    for word in given:
        if awaited is not None:
            awaited = None
        elif word.startswith("-") and word in options:
            awaited = None if getattr(options[word], "is_flag", False) else options[word]
        elif not word.startswith("-"):
            positional += 1
    if awaited is not None:
        return _values(awaited, choices, before, unfinished)
    option, equals, start = unfinished.partition("=")
    if equals and option in options:
        values = _values(options[option], choices, before, start)
        return [(f"{option}={value}", text) for value, text in values]
    if unfinished.startswith("-"):
        return _options(parameters)
    arguments = [each for each in parameters if each.param_type_name == "argument"]
    if not arguments:
        return ()
    place = min(positional, len(arguments) - 1)
    if positional > place and arguments[place].nargs != -1:
        return ()
    return _values(arguments[place], choices, before, unfinished)


def _all_commands() -> Iterator[Command]:
    for section in SECTIONS.values():
        yield from section


def _commands(unfinished: str) -> Iterator[Offer]:
    if unfinished.startswith("-"):
        yield from (("--help", "Show the commands."), ("--version", "Show the version."))
        return
    for command in _all_commands():
        yield command.name, command.summary


def _options(parameters: Sequence[Any]) -> Iterator[Offer]:
    for option in parameters:
        if option.param_type_name == "option" and not getattr(option, "hidden", False):
            for name in (*option.opts, *option.secondary_opts):
                if name.startswith("--"):
                    yield name, option.help or ""
    yield "--help", "Show this command's help."


def _choices_of(command: Command) -> dict[str, list[str]]:
    """The choices of each parameter that is an enumeration."""
    hints = get_type_hints(command.called())
    return {
        name: [str(member.value) for member in hint]
        for name, hint in hints.items()
        if isinstance(hint, type) and issubclass(hint, Enum)
    }


def _values(
    parameter: Any, choices: dict[str, list[str]], before: Sequence[str], unfinished: str
) -> Iterable[Offer]:
    """By the parameter's choices, its name, or what its help calls the value."""
    if parameter.name in choices:
        return [(choice, "") for choice in choices[parameter.name]]
    metavar = parameter.metavar or ""
    for name, offer in _BY_OPTION.items():
        if name in parameter.opts:
            return offer(before)
    for word, offer in _BY_METAVAR:
        if word in metavar:
            return [*offer(before), *(_files(unfinished) if "FILE" in metavar else ())]
    return _files(unfinished) if "FILE" in metavar or "PATH" in metavar else ()


def _files(unfinished: str) -> Iterator[Offer]:
    folder, _, start = unfinished.rpartition("/")
    place = Path(folder or ("/" if unfinished.startswith("/") else "."))
    for path in sorted(place.iterdir()) if place.is_dir() else ():
        if path.name.startswith(start) and (start or not path.name.startswith(".")):
            shown = f"{folder}/{path.name}" if "/" in unfinished else path.name
            yield (f"{shown}/" if path.is_dir() else shown), ""


def _catalogue() -> Any:
    from greenfast.search.kernels.catalogue import Catalogue

    return Catalogue.from_environment()


def _kernel_of(before: Sequence[str]) -> Any:
    """The kernel that the command line names; None without one."""
    catalogue = _catalogue()
    name = next((word for word in before[1:] if word in catalogue.names()), None)
    return catalogue.kernel(name) if name else None


def _kernels(before: Sequence[str]) -> list[Offer]:
    return [(name, "") for name in _catalogue().names()]


def _pages(before: Sequence[str]) -> list[Offer]:
    from greenfast.app.cli.docs import pages

    return [(page.name, page.title) for page in pages()]


def _templates(before: Sequence[str]) -> list[Offer]:
    kernel = _kernel_of(before)
    return [(template.name, template.idea) for template in kernel.templates] if kernel else []


def _presets(before: Sequence[str]) -> list[Offer]:
    kernel = _kernel_of(before)
    if kernel is None:
        return []
    return [
        (preset.name, preset.doc)
        for template in kernel.templates
        if "--template" not in before or template.name in before
        for preset in template.presets
    ]


def _whole_presets(before: Sequence[str]) -> list[Offer]:
    """`wmma:stage2`, for --baseline."""
    kernel = _kernel_of(before)
    named = [
        (f"{template.name}:{preset.name}", preset.doc)
        for template in (kernel.templates if kernel else ())
        for preset in template.presets
    ]
    return [*named, ("champion", ""), ("none", "")]


def _workloads(before: Sequence[str]) -> list[Offer]:
    kernel = _kernel_of(before)
    return [(each.name, each.title) for each in kernel.workloads] if kernel else []


def _settings(before: Sequence[str]) -> list[Offer]:
    """`tile_m=64` for --set."""
    kernel = _kernel_of(before)
    return [
        (f"{parameter.name}={str(value).lower() if isinstance(value, bool) else value}", "")
        for template in (kernel.templates if kernel else ())
        if "--template" not in before or template.name in before
        for parameter in template.parameters
        for value in parameter.values
    ]


def _targets(before: Sequence[str]) -> list[Offer]:
    from greenfast.search.devices.facts import device, device_names
    from greenfast.search.recordings.shelf import recording_names

    emulated = [(f"emulator:{name}", device(name).title) for name in device_names()]
    recorded = [(f"replay:{name}", "a recording") for name in recording_names()]
    return [*emulated, ("cuda:0", "the first GPU"), *recorded]


def _strategies(before: Sequence[str]) -> list[Offer]:
    from greenfast.app.views.listings import list_strategies

    return [(strategy.name, strategy.doc) for strategy in list_strategies()]


def _searches(before: Sequence[str]) -> list[Offer]:
    from greenfast.app.wiring import Services

    settings = Settings.from_environment()
    if not settings.database_url and not (settings.data / "greenfast.sqlite3").exists():
        return []  # pressing the tabulator makes no database
    services = Services(settings)
    try:
        return [("last", "the newest search"), *services.store.search_ids(limit=MOST)]
    finally:
        services.close()


def _candidates(before: Sequence[str]) -> list[Offer]:
    """`attention/wmma:stage2` and searches, for `bench`."""
    presets = [
        (f"{name}/{template.name}:{preset.name}", preset.doc)
        for name in _catalogue().names()
        for template in _templates_of(name)
        for preset in template.presets
    ]
    return [*_searches(before), *presets]


def _templates_of(kernel: str) -> Sequence[Any]:
    try:
        return tuple(_catalogue().kernel(kernel).templates)
    except GreenfastError:
        return ()


def _names_of(*names: str) -> Callable[[Sequence[str]], list[Offer]]:
    return lambda before: [(name, "") for name in names]


def _columns(before: Sequence[str]) -> list[Offer]:
    from greenfast.app.cli.columns import column_names

    return [(name, "") for name in column_names()]


def _enum(name: str) -> Callable[[Sequence[str]], list[Offer]]:
    def offers(before: Sequence[str]) -> list[Offer]:
        from greenfast.search import status, verdict

        kind = getattr(verdict, name, None) or getattr(status, name)
        return [(str(member), "") for member in kind]

    return offers


_BY_OPTION: dict[str, Callable[[Sequence[str]], list[Offer]]] = {
    "--template": _templates,
    "--preset": _presets,
    "--baseline": _whole_presets,
    "--workload": _workloads,
    "--target": _targets,
    "--strategy": _strategies,
    "--set": _settings,
    "--mode": _names_of("auto", "hot", "cold"),
    "--resume": _searches,
    "--verdict": _enum("VerdictName"),
    "--stage": _enum("Stage"),
    "--reason": _enum("Reason"),
    "--status": _enum("SearchStatus"),
    "--sort": _columns,
    "--columns": _columns,
}
_BY_METAVAR: tuple[tuple[str, Callable[[Sequence[str]], list[Offer]]], ...] = (
    ("CANDIDATE", _candidates),
    ("KERNEL", _kernels),
    ("PAGE", _pages),
    ("SEARCH", _searches),
    ("SHELL", _names_of("bash", "fish", "zsh")),
    ("kernel|template", _names_of("kernel", "template")),
)
