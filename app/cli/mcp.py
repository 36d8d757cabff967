"""`greenfast mcp`: greenfast as tools of a program that speaks the Model Context Protocol."""

from __future__ import annotations

from greenfast import __version__
from greenfast.app.cli.mcp_input import repair_input
from greenfast.app.cli.services import opened_services
from greenfast.search.errors import UsageError

INSTRUCTIONS = (
    "greenfast judges CUDA sources: correct within derived bounds, free of races, and how fast. "
    "Read get_spec and best_source, then submit, and act on the feedback. Times on an emulator are "
    "modelled: they order sources that differ by more than their band, and prove nothing faster."
)


def mcp() -> int:
    """Serve the tools over MCP on standard input and output, for an agent on this machine.

    Needs the extra `greenfast[mcp]`. Sources are judged in this process and stored in the same
    data folder as all searches.
    """
    from greenfast.app.cli.mcp_tools import Tools
    from greenfast.app.service.worker import Stop

    try:
        from greenfast.app.cli.mcp_server import Server
    except ImportError as error:
        raise UsageError(
            "the MCP SDK is not installed",
            code="mcp_missing",
            mend="pip install 'greenfast[mcp]'",
        ) from error

    with opened_services() as services:
        stop = Stop(services.settings.drain_s, on_force=services.interrupt)
        tools = Tools(services, stop)
        server = Server(
            tools.all, instructions=INSTRUCTIONS, version=__version__, log_level="ERROR"
        )
        repair_input()
        try:
            server.run("stdio")
        finally:
            stop.force()
            tools.drain(services.settings.drain_s)
    return 0
