"""`greenfast mcp`: greenfast as tools of a program that speaks the Model Context Protocol."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any

import anyio.to_thread
from pydantic import ValidationError

from greenfast import __version__
from greenfast.app.cli.mcp_input import repair_input
from greenfast.app.cli.services import opened_services
from greenfast.search.errors import Fault, GreenfastError, UsageError
from greenfast.search.json_values import json_values
from greenfast.search.text import one_line, shortened

INSTRUCTIONS = (
    "greenfast judges CUDA sources: correct within derived bounds, free of races, and how fast. "
    "Read get_spec and best_source, then submit, and act on the feedback. Times on an emulator are "
    "modelled: they order sources that differ by more than their band, and prove nothing faster."
)
LONGEST_REFUSAL = 2000  # characters: a refusal repeats names that the client sent


def mcp() -> int:
    """Serve the tools over MCP on standard input and output, for an agent on this machine.

    Needs the extra `greenfast[mcp]`. Sources are judged in this process and stored in the same
    data folder as all searches.
    """
    from greenfast.app.cli.mcp_arguments import require_known
    from greenfast.app.cli.mcp_tools import Tools
    from greenfast.app.service.worker import Stop

    try:
        from mcp.server import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
    except ImportError as error:
        raise UsageError(
            "the MCP SDK is not installed",
            code="mcp_missing",
            mend="pip install 'greenfast[mcp]'",
        ) from error
    with opened_services() as services:
        stop = Stop(services.settings.drain_s, on_force=services.interrupt)
        tools = Tools(services, stop)
        by_name = {tool.__name__: tool for tool in tools.all}

        class Server(MCPServer):
            """Refuses wrong arguments as REST does."""

            async def call_tool(self, name: str, arguments: dict[str, Any], *more: Any) -> Any:
                try:
                    require_known(by_name, name, arguments)
                    return await super().call_tool(name, arguments, *more)
                except UsageError as error:
                    raise ToolError(_sentence(error)) from error
                except ToolError as error:
                    # Its type says whether the SDK logs a traceback.
                    raise type(error)(_of_sdk(name, error)) from error

        server = Server(
            "greenfast", instructions=INSTRUCTIONS, version=__version__, log_level="ERROR"
        )
        for tool in tools.all:
            server.tool()(_in_a_thread(tool, ToolError))
        repair_input()
        try:
            server.run("stdio")
        finally:
            stop.force()
            tools.drain(services.settings.drain_s)
    return 0


def _in_a_thread(
    tool: Callable[..., dict[str, Any]], refusal: type[Exception]
) -> Callable[..., Awaitable[dict[str, Any]]]:
    """The tool for the SDK: off its event loop, with our errors as one sentence and a code."""

    @functools.wraps(tool)
    async def called(**arguments: Any) -> dict[str, Any]:
        try:
            # When the client is gone, no one needs the answer: `drain` ends the work.
            answer = await anyio.to_thread.run_sync(
                lambda: tool(**arguments), abandon_on_cancel=True
            )
        except GreenfastError as error:
            raise refusal(_sentence(error)) from error
        values: dict[str, Any] = json_values(answer)
        return values

    return called


def _of_sdk(tool: str, error: Exception) -> str:
    """Our sentence for an error that the SDK raises in the place of ours or of Pydantic's."""
    from greenfast.app.cli.mcp_arguments import bad_value

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, GreenfastError):
            return _sentence(cause)
        if isinstance(cause, ValidationError):
            return _sentence(bad_value(tool, cause))
        cause = cause.__cause__
    return "fault (internal_error): a bug of greenfast; its standard error has the traceback"


def _sentence(error: GreenfastError) -> str:
    """For the agent, with the code."""
    kind = "fault" if isinstance(error, Fault) else "refused"
    return f"{kind} ({error.code}): {shortened(one_line(error), LONGEST_REFUSAL)}"
