"""The SDK's server with our refusals: one sentence and a stable code, as everywhere else.

Imports the MCP SDK, which is an extra.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import anyio.to_thread
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import ValidationError

from greenfast.app.views.validation import json_words
from greenfast.search.errors import Fault, GreenfastError, UsageError, unknown_name
from greenfast.search.json_values import json_values
from greenfast.search.text import one_line, shortened

LONGEST_REFUSAL = 2000  # characters: a refusal repeats names that the client sent
Tool = Callable[..., dict[str, Any]]


class Server(MCPServer):
    """Serves functions as tools."""

    def __init__(self, tools: Iterable[Tool], **options: Any) -> None:
        super().__init__("greenfast", **options)
        self._fields: dict[str, tuple[str, ...]] = {}
        for tool in tools:
            self._fields[tool.__name__] = tuple(inspect.signature(tool).parameters)
            self.tool()(_in_a_thread(tool))

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        """Call a tool. ToolError with our words; the SDK itself would ignore an unknown field."""
        try:
            self._refuse_unknown(name, arguments)
            return await super().call_tool(name, arguments, context)
        except GreenfastError as error:
            raise _refusal(error) from error
        except ToolError as error:
            match error.__cause__:
                case ValidationError() as invalid:
                    raise _refusal(self._invalid(name, invalid)) from error
                case ToolError() as ours:
                    raise ours from error
            raise

    def _refuse_unknown(self, name: str, arguments: dict[str, Any]) -> None:
        if name not in self._fields:
            raise unknown_name("tool", name, self._fields)
        for field in arguments:
            if field not in self._fields[name]:
                raise unknown_name("field", field, self._fields[name], where=f"the tool {name}")

    def _invalid(self, name: str, error: ValidationError) -> UsageError:
        """The first error of the arguments' schema, with the codes of a body over REST."""
        first = error.errors(include_input=False)[0]
        field = ".".join(map(str, first["loc"]))
        takes = f"{name} takes {', '.join(self._fields[name])}"
        if first["type"] == "missing":
            return UsageError(f"{field} is missing", code="missing_field", mend=takes)
        why = json_words(first["msg"])
        return UsageError(f"{field} cannot have this value: {why}", code="bad_value", mend=takes)


def _refusal(error: GreenfastError) -> ToolError:
    kind = "fault" if isinstance(error, Fault) else "refused"
    return ToolError(f"{kind} ({error.code}): {shortened(one_line(error), LONGEST_REFUSAL)}")


def _in_a_thread(tool: Tool) -> Callable[..., Awaitable[dict[str, Any]]]:
    """The tool for the SDK: off its event loop, with our errors as one sentence and a code."""

    @functools.wraps(tool)
    async def called(**arguments: Any) -> dict[str, Any]:
        try:
            # When the client is gone, no one needs the answer: `drain` ends the work.
            answer = await anyio.to_thread.run_sync(
                lambda: tool(**arguments), abandon_on_cancel=True
            )
        except GreenfastError as error:
            raise _refusal(error) from error
        values: dict[str, Any] = json_values(answer)
        return values

    return called
