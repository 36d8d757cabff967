"""The `greenfast` command: what it is made of, and how it ends.

Exit codes: 0 accepted, green, done; 1 rejected; 2 the caller's or an author's mistake; 3 our fault; 130 Ctrl-C.
"""

from __future__ import annotations

import gc

gc.disable()  # until all is imported, which leaves no garbage: looking for it takes a fifth of a command's start

import os
import sys
import threading
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from greenfast import __version__
from greenfast.app.cli.champions import add_champion_commands
from greenfast.app.cli.check import add_check_commands
from greenfast.app.cli.doctor import add_doctor_commands
from greenfast.app.cli.lists import add_list_commands
from greenfast.app.cli.output import print_error, say
from greenfast.app.cli.probe import add_probe_commands
from greenfast.app.cli.profile import add_profile_commands
from greenfast.app.cli.record import add_record_commands
from greenfast.app.cli.search import add_search_commands
from greenfast.app.cli.service import add_service_commands
from greenfast.app.cli.toolkit import add_toolkit_commands
from greenfast.app.cli.trial import add_trial_commands
from greenfast.app.cli.verify import add_verify_commands
from greenfast.app.service.worker import PREPARING
from greenfast.app.settings import Settings
from greenfast.search.errors import Fault, GreenfastError, UsageError

gc.freeze()  # and it stays to the end: looking through it once more on the way out is a quarter of a short command
gc.enable()

EXIT_USAGE, EXIT_FAULT, EXIT_INTERRUPTED = 2, 3, 130
# Not a candidate's nor greenfast's doing: the machine is not as it has to be, and the sentence says what to do.
MENDED_BY_THE_CALLER = (
    "host_compiler_missing",
    "toolchain_missing",
    "toolchain_mixed",
    "toolchain_wrong",
    "toolkit_not_installed",
    "database_locked",
    "database_readonly",
)
# Typer carries its own copy of Click, or uses the installed one: the class is reached through what Typer exports.
COMMAND_LINE_ERROR = next(
    one for one in typer.BadParameter.__mro__ if one.__name__ == "ClickException"
)


def make_app() -> typer.Typer:
    made = typer.Typer(
        name="greenfast",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        help="Search for the fastest CUDA kernel that is also correct.",
    )
    made.callback()(_global_options)
    for add in (
        add_record_commands,
        add_trial_commands,
        add_check_commands,
        add_search_commands,
        add_service_commands,
        add_list_commands,
        add_verify_commands,
        add_profile_commands,
        add_probe_commands,
        add_doctor_commands,
        add_toolkit_commands,
        add_champion_commands,
    ):
        add(made)
    return made


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"greenfast {__version__}")
        raise typer.Exit


def _global_options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Options before the command; the help text is the application's own."""


def run(arguments: Sequence[str]) -> int:
    """Run one command; every way in which it can end is an exit code and at most one sentence."""
    as_json = "--json" in arguments
    try:
        return int(
            make_app()(args=list(arguments), prog_name="greenfast", standalone_mode=False) or 0
        )
    except COMMAND_LINE_ERROR as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error.format_message(), file=sys.stderr)
            return EXIT_USAGE
        mend = f"see `{error.ctx.command_path} --help`" if getattr(error, "ctx", None) else ""
        print_error(
            UsageError(error.format_message().rstrip("."), code="bad_command_line", mend=mend),
            as_json,
        )
        return EXIT_USAGE
    except Fault as fault:
        print_error(fault, as_json)
        return EXIT_USAGE if fault.code in MENDED_BY_THE_CALLER else EXIT_FAULT
    except GreenfastError as error:
        print_error(error, as_json)
        return EXIT_USAGE
    except (KeyboardInterrupt, typer.Abort):
        say("greenfast: interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # whoever read our output has enough
        return 0
    except Exception as error:
        return _our_bug(error, as_json)


def _our_bug(error: Exception, as_json: bool) -> int:
    if Settings.from_environment().debug:
        traceback.print_exc()
    print_error(
        Fault(
            f"a bug of greenfast: {type(error).__name__}: {error}",
            code="internal_error",
            mend="GREENFAST_DEBUG=1 shows where",
        ),
        as_json,
    )
    return EXIT_FAULT


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")
    code = run(sys.argv[1:])
    if any(one.name == PREPARING for one in threading.enumerate()):
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)  # told to stop while building: the build is not waited for
    sys.exit(code)


if __name__ == "__main__":
    main()
