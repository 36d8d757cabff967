"""The `greenfast` command: how it starts, and how it ends.

Exit codes: 0 success; 1 the candidate is rejected, or findings; 2 a mistake of the caller or of a
kernel's author; 3 a fault of greenfast or of the machine; 130 Ctrl-C.
"""

from __future__ import annotations

import errno
import gc
import io
import os
import sys
import threading
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from greenfast import __version__
from greenfast.app.cli.commands import CommandGroup
from greenfast.app.cli.output import print_error
from greenfast.app.views.terminal import say
from greenfast.search.errors import Fault, GreenfastError, UsageError
from greenfast.search.text import shortened

EXIT_USAGE, EXIT_FAULT, EXIT_INTERRUPTED = 2, 3, 130
HELP = """Search for the fastest CUDA kernel that is also correct.

A kernel is an operation to compute, such as attention. Its templates are CUDA sources with
parameters; a candidate is a template with a value for each. greenfast compiles every candidate,
compares it with a float64 reference, checks it for races, times it, and keeps the evidence.

New here? Start with these three:

\b
"""
FIRST_COMMANDS = """\
  greenfast doctor                          check this machine
  greenfast search attention --trials 20    search, in this terminal
  greenfast serve                           read the result in a browser"""
WELCOME = f"""greenfast {__version__} searches for the fastest CUDA kernel that is also correct.

Start with these three:

{FIRST_COMMANDS}

`greenfast --help` lists every command, and `greenfast completion SHELL` completes them."""
# Not a bug: the machine lacks something, and the sentence states what to do.
MACHINE_FAULTS = (
    "host_compiler_missing",
    "toolchain_missing",
    "toolchain_mixed",
    "toolchain_wrong",
    "toolkit_not_installed",
    "database_locked",
    "database_readonly",
)
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
# Typer carries its own copy of Click, or uses the installed one: reach the class through Typer.
COMMAND_LINE_ERROR: type[Exception] = next(
    kind
    for kind in typer.BadParameter.__mro__
    if kind.__name__ == "ClickException" and issubclass(kind, Exception)
)


def make_app() -> typer.Typer:
    """The whole command line."""
    application = typer.Typer(
        name="greenfast",
        cls=CommandGroup,
        invoke_without_command=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        help=HELP + FIRST_COMMANDS,
        epilog="`greenfast COMMAND --help` describes a command and its options.",
    )
    application.callback()(_global_options)
    return application


# Commands that people try, and what does the work.
ELSEWHERE = {
    "help": "`greenfast --help` lists the commands",
    "kernels": "`greenfast templates` lists kernels and their templates",
    "list": "`greenfast searches` lists searches, `greenfast templates` kernels",
    "run": "`greenfast trial` tests one candidate, `greenfast search` many",
    "version": "write `greenfast --version`",
}


def _show_version(requested: bool) -> None:
    if requested:
        print(f"greenfast {__version__}")
        raise typer.Exit


def _global_options(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Options before the command; the help text is the application's own."""
    if context.invoked_subcommand is None:
        print(WELCOME)
        raise typer.Exit(EXIT_USAGE)


def run(arguments: Sequence[str]) -> int:
    """Run one command. Returns its exit code; an error is a single sentence on stderr."""
    as_json = "--json" in arguments
    try:
        return int(
            make_app()(args=list(arguments), prog_name="greenfast", standalone_mode=False) or 0
        )
    except COMMAND_LINE_ERROR as error:
        return _bad_command_line(error, ELSEWHERE.get((*arguments, "")[0], ""), as_json)
    except Fault as fault:
        print_error(fault, as_json)
        return EXIT_USAGE if fault.code in MACHINE_FAULTS else EXIT_FAULT
    except GreenfastError as error:
        print_error(error, as_json)
        return EXIT_USAGE
    except (KeyboardInterrupt, typer.Abort):
        say("greenfast: interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _drop_output()  # its reader has enough, as in `greenfast templates | head`
        return 0
    except OSError as error:
        return _unusable_file(error, as_json)
    except Exception as error:
        return _own_bug(error, as_json)


def _bad_command_line(error: Exception, elsewhere: str, as_json: bool) -> int:
    """`elsewhere`: what does the work of a command that does not exist; else empty."""
    sentence = str(getattr(error, "message", error))
    if type(error).__name__ == "NoArgsIsHelpError":
        print(sentence, file=sys.stderr)
        return EXIT_USAGE
    context = getattr(error, "ctx", None)
    if callable(shown := getattr(error, "format_message", None)):
        sentence = str(shown())
    mend = elsewhere or (f"see `{context.command_path} --help`" if context else "")
    print_error(UsageError(sentence.rstrip("."), code="bad_command_line", mend=mend), as_json)
    return EXIT_USAGE


def _unusable_file(error: OSError, as_json: bool) -> int:
    if error.filename is not None:
        sentence = f"{shortened(str(error.filename))}: {error.strerror}"
    elif error.errno in FULL:
        _drop_output()
        sentence = f"the output, or a file, cannot be written: {error.strerror}"
    else:
        return _own_bug(error, as_json)
    print_error(Fault(sentence, code="file_error"), as_json)
    return EXIT_FAULT


def _drop_output() -> None:
    """Nobody gets the rest of the output, so that Python does not fail on it when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _own_bug(error: Exception, as_json: bool) -> int:
    from greenfast.app.settings import Settings

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


def _is_building() -> bool:
    """Whether a worker that was told to stop is still building the emulator."""
    worker = sys.modules.get("greenfast.app.service.worker")
    return worker is not None and any(
        thread.name == worker.PREPARING for thread in threading.enumerate()
    )


def main() -> None:
    # Before NumPy is loaded. Its arrays here are small. Where all cores compile, several threads of
    # linear algebra wait for each other.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
    except OSError as error:
        code = _unusable_file(error, as_json=False)
    if _is_building():  # the build is not waited for
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
    gc.freeze()  # else the interpreter looks through all modules for garbage: up to half a second
    sys.exit(code)


if __name__ == "__main__":
    main()
