"""`greenfast trace`: run a PyTorch program and write the workloads that it calls."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO, Annotated, Any

import typer

import greenfast
from greenfast.app.cli.files import require_folder
from greenfast.app.cli.options import AsJson
from greenfast.app.cli.output import console, print_json, table
from greenfast.app.views.terminal import say
from greenfast.search.errors import Fault, UsageError
from greenfast.search.text import visible
from greenfast.traced import TraceResult, check_ending, write_workloads

TRACER = Path(greenfast.__file__).with_name("tracing.py")
SECONDS_TO_END = 10
WITH_VALUE = ("-X", "-W", "--check-hash-based-pycs")  # options of Python that take a word


def trace(
    program: Annotated[
        list[str],
        typer.Argument(metavar="-- python PROGRAM.py [ARGUMENTS]...", help="The program to run."),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The .toml, .json or .csv file to write. With several kernels, there is "
            "one file per kernel, with its name added.",
        ),
    ] = Path("workloads.toml"),
    as_json: AsJson = False,
) -> int:
    """Run a PyTorch program, and record the shapes of its calls of attention, rms_norm and linear.

    The file is for `greenfast tune`. Weights are shares of the GPU's time, or numbers of calls
    without a GPU. Calls inside torch.compile are recorded, because compilation is off while
    tracing.

    Ctrl-C ends the program, and the calls up to then are written.

    Exit codes: 0 written, 1 the program failed or called nothing that a kernel covers, 130 Ctrl-C.
    """
    check_ending(output)
    require_folder(output)
    with tempfile.TemporaryDirectory(prefix="greenfast-trace-") as folder:
        result = Path(folder) / "calls.json"
        command = traced_command(program, result)
        environment = {**os.environ, "TORCHDYNAMO_DISABLE": "1"}
        try:
            # stdout is for the JSON alone
            code = run_to_its_end(command, environment, sys.stderr if as_json else None)
        except OSError as error:
            raise UsageError(
                f"{command[0]} cannot be started: {error.strerror}", code="bad_program"
            ) from error
        calls = _calls(result, code)
    traced, paths = write_workloads(calls, output)
    for path in paths:
        say(f"written to {path}")
    if as_json:
        print_json(_json(traced, paths, code))
    else:
        show_trace(traced)
    if code:
        what = "; the calls up to then are written" if paths else ""
        by = "by Ctrl-C" if code == -signal.SIGINT else f"with {code}"
        say(f"greenfast: the program ended {by}{what}")
    if code == -signal.SIGINT:
        return 130
    return 1 if code or not paths else 0


def run_to_its_end(command: list[str], environment: dict[str, str], stdout: IO[str] | None) -> int:
    """The exit code of the program. After Ctrl-C it may end by itself; the second kills it.

    A terminal sends Ctrl-C to the program, too, whose calls are written when it ends.
    """
    with subprocess.Popen(command, env=environment, stdout=stdout) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            say("greenfast: waiting for the program to end; Ctrl-C kills it")
        try:
            with suppress(subprocess.TimeoutExpired):
                return process.wait(SECONDS_TO_END)
            process.send_signal(signal.SIGINT)  # it was not sent to both
            return process.wait()
        except KeyboardInterrupt:
            process.kill()
            raise


def traced_command(program: list[str], result: Path) -> list[str]:
    """The program's command with the tracer in front of its script."""
    words = list(program)
    if words and words[0].endswith(".py"):
        words.insert(0, "python3")
    if not words or "python" not in Path(words[0]).name or not shutil.which(words[0]):
        raise UsageError(
            f"{(words or [''])[0]!r} is not a Python interpreter",
            code="bad_program",
            mend="write for example `greenfast trace -- python model.py`",
        )
    at = 1
    while at < len(words) and words[at].startswith("-") and words[at][:2] not in ("-m", "-c"):
        at += 2 if words[at] in WITH_VALUE else 1
    if at >= len(words):
        raise UsageError(
            "no program is named",
            code="bad_program",
            mend="write `greenfast trace -- python PROGRAM.py`",
        )
    how, rest = "path", words[at:]
    if words[at][:2] in ("-m", "-c"):
        how = words[at][:2]
        rest = [words[at][2:], *words[at + 1 :]] if len(words[at]) > 2 else words[at + 1 :]
    if not rest:
        raise UsageError(
            f"nothing follows {how}",
            code="bad_program",
            mend="write `greenfast trace -- python PROGRAM.py`",
        )
    if how == "path" and not Path(rest[0]).exists():
        raise UsageError(f"there is no file {visible(rest[0])}", code="bad_program")
    return [*words[:at], str(TRACER), str(result), how, *rest]


def _calls(result: Path, code: int) -> Any:
    """The tracer's output when the program ended."""
    try:
        return json.loads(result.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise Fault(
            f"the program ended with {code} before its calls could be written",
            code="nothing_traced",
            mend="it needs PyTorch 2.4 or newer, and must not end by a signal or os._exit",
        ) from error


def show_trace(traced: TraceResult) -> None:
    """Print the workloads of each kernel, then what no kernel covers."""
    out = console()
    unit = "% of time" if traced.by_time else "calls"
    if traced.workloads:
        out.print(
            table(
                ("kernel", "sizes", "options", "calls", f"weight ({unit})"),
                [
                    (
                        row.kernel,
                        " ".join(f"{name}={size}" for name, size in row.dims.items()),
                        " ".join(f"{name}={value}" for name, value in row.options.items()),
                        row.count,
                        f"{traced.weight(row):g}",
                    )
                    for row in traced.workloads
                ],
            )
        )
    if traced.not_covered:
        rows = [(row.kernel, row.count, row.reason) for row in traced.not_covered]
        out.print(table(("kernel", "calls", "not covered, because"), rows))
    if not traced.workloads:
        out.print("The program made no call that a kernel covers, so no file is written.")
    if "rmsnorm" in traced.kernels:
        out.print("The kernel rmsnorm also adds a residual, and the calls of RMSNorm do not.")
    if traced.lost:
        out.print(f"{traced.lost} calls could not be read.")


def _json(traced: TraceResult, paths: tuple[Path, ...], code: int) -> dict[str, Any]:
    return {
        "files": [str(path) for path in paths],
        "exit_code": code,
        "weights": "time" if traced.by_time else "calls",
        "workloads": [
            {**vars(row), "weight": traced.weight(row), "strides": list(row.strides)}
            for row in traced.workloads
        ],
        "not_covered": [vars(row) for row in traced.not_covered],
        "lost": traced.lost,
    }
