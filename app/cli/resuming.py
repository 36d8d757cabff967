"""What a command takes beside --resume, which continues with the stored settings."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import typer

from greenfast.search.errors import UsageError


def refuse_settings(
    context: typer.Context,
    of: str,
    *,
    allowed: Collection[str],
    remedies: Mapping[str, str] | None = None,
) -> None:
    """UsageError for an option on the command line that only a new search or tuning takes.

    `of` names what is resumed. `remedies`: for some options, what to do instead.
    """
    for parameter in context.command.params:
        name = str(parameter.name)
        source = context.get_parameter_source(name)
        if name in allowed or source is None or source.name != "COMMANDLINE":
            continue
        is_off = context.params[name] is False
        option = max((parameter.secondary_opts if is_off else ()) or parameter.opts, key=len)
        remedy = (remedies or {}).get(name, f"begin a new {of}")
        raise UsageError(
            f"{option} is a setting of a new {of}, and --resume continues with the stored ones",
            code="bad_command_line",
            mend=f"leave {option} out, or {remedy}",
        )
