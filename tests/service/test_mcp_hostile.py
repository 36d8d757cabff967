"""`greenfast mcp` with a client that sends nonsense, sends much at once, or is gone."""

from __future__ import annotations

import importlib.util
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from service_home import DEADLINE_S, Home, children, is_alive, run_async, until
from test_submissions import LAUNCH, RIGHT

# Not imported here: to collect these tests would cost every test process a second.
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("mcp") is None, reason="the extra `mcp` is not installed"
)

ENTRY = {"kernel": "axpy", "source": "int x;", "launch": LAUNCH, "entry": "k"}
NOISE = [
    b"{not json}\n",
    b"\xff\xfe\x00\n",
    b"\n",
    b"[]\n",
    b"null\n",
    b'{"jsonrpc":"2.0"}\n',
    b'{"jsonrpc":"2.0","id":{"a":1},"method":"ping"}\n',
    b"[" * 100_000 + b"\n",
    b'{"a":' * 50_000 + b"\n",
    b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":' + b"9" * 10_000 + b"}}\n",
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":12345}}\n',
    b"x" * 2_000_000 + b"\n",
]
# Tool, arguments, and a word of the refusal.
REFUSED: list[tuple[str, Any, str]] = [
    ("no_such", {}, "refused (unknown_tool): unknown tool 'no_such' (known: best_source"),
    ("get_specs", {}, "did you mean 'get_spec'?"),
    ("get_spec", {}, "refused (missing_field): the tool get_spec needs kernel (its arguments: "),
    ("get_spec", {"kernel": 5}, "(bad_value): kernel of the tool get_spec must be a text, not 5"),
    ("get_spec", {"kernel": "axpy", "targte": "cuda"}, "(unknown_field): unknown field 'targte'"),
    ("get_spec", {"kernel": "../axpy"}, "unknown_kernel"),
    ("get_spec", {"kernel": "/etc/passwd"}, "unknown_kernel"),
    ("get_spec", {"kernel": "axpy\0"}, "unknown_kernel"),
    ("get_spec", {"kernel": "\ud800"}, "unknown_kernel"),
    ("get_spec", {"kernel": "\x1b[2J"}, "unknown_kernel"),
    ("get_spec", {"kernel": "axpy", "target": "\ud800"}, "unknown_target"),
    ("get_spec", {"kernel": "axpy", "target": "replay:../../etc/passwd"}, "unknown_target"),
    ("list_workloads", {"kernel": "x" * 1_000_000}, "unknown_kernel"),
    ("best_source", {"kernel": "axpy", "workload": "N=99999999999999999999"}, "bad_workload"),
    ("best_source", {"kernel": "axpy", "workload": "\udfff"}, "unknown_workload"),
    ("explain", {"trial": "\0"}, "unknown_search"),
    ("explain", {"trial": "../../x/1"}, "refused ("),
    ("explain", {"trial": "1/99999999999999999999999"}, "refused ("),
    ("compare", {"a": "%", "b": "_"}, "refused ("),
    (
        "search_negatives",
        {"kernel": "axpy", "limit": "many"},
        "search_negatives must be a whole number",
    ),
    ("search_negatives", {"kernel": "axpyy"}, "unknown_kernel"),
    ("submit", {**ENTRY, "source": "\0"}, "bad_source"),
    ("submit", {**ENTRY, "source": "int x; // \ud800"}, "bad_source"),
    ("submit", {**ENTRY, "source": "int x; // \x1b[2J"}, "bad_source"),
    ("submit", {**ENTRY, "source": "x" * 2_000_000}, "source_too_large"),
    ("submit", {**ENTRY, "launch": '\ud800 = "'}, "bad_toml"),
    ("submit", {**ENTRY, "entry": "../k"}, "bad_entry"),
    ("submit", {**ENTRY, "author": "\ud800"}, "bad_text"),
    ("submit", {**ENTRY, "model": "\0"}, "bad_text"),
    ("submit", {**ENTRY, "hypothesis": "h" * 100_000}, "too_long"),
    ("submit", {**ENTRY, "parent": "/etc/passwd"}, "unknown_parent"),
    ("submit", {**ENTRY, "workloads": ["../line"]}, "unknown_workload"),
    ("submit", {**ENTRY, "workloads": "line"}, "refused (bad_value): workloads of the tool"),
    ("submit", {**ENTRY, "target": "emulator:nope"}, "unknown_target"),
]


class Server:
    """The process, with lines that may be anything."""

    def __init__(self, home: Home) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "greenfast", "mcp"],
            env=home.environment,
            cwd=home.data,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._answers: dict[object, dict[str, Any]] = {}
        self._arrived: queue.Queue[bytes] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        client = {"protocolVersion": "2025-06-18", "capabilities": {}}
        self.send("initialize", {**client, "clientInfo": {"name": "hostile", "version": "1"}}, 0)
        self.answer(0)
        self.raw(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')

    def raw(self, line: bytes) -> None:
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def send(self, method: str, params: Any, number: int) -> None:
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        self.raw(json.dumps(message).encode() + b"\n")

    def call(self, tool: str, arguments: Any, number: int) -> None:
        self.send("tools/call", {"name": tool, "arguments": arguments}, number)

    def answer(self, number: int) -> dict[str, Any]:
        while number not in self._answers:
            message = json.loads(self._arrived.get(timeout=DEADLINE_S))
            self._answers[message.get("id")] = message
        return self._answers.pop(number)

    def _read(self) -> None:
        for line in self.process.stdout:
            self._arrived.put(line)

    def end(self) -> str:
        """Its messages on stderr."""
        self.process.stdin.close()
        try:
            self.process.wait(DEADLINE_S)
        finally:
            self.process.kill()
        words = self.process.stderr.read().decode()
        self.process.stdout.close()
        self.process.stderr.close()
        return words


@pytest.fixture(scope="module")
def home(tmp_path_factory, artifacts) -> Iterator[Home]:
    made = Home(tmp_path_factory.mktemp("mcp") / "data", artifacts)
    yield made
    made.end_all()


def test_nonsense_is_answered_with_codes_and_the_process_lives_on(home):
    server = Server(home)
    for line in NOISE:
        server.raw(line)
    for number, (tool, arguments, _) in enumerate(REFUSED, 10):
        server.call(tool, arguments, number)
    for number, (tool, arguments, word) in enumerate(REFUSED, 10):
        result = server.answer(number)["result"]
        text = result["content"][0]["text"]
        assert result["isError"] and word in text, (tool, str(arguments)[:100], text[:500])
        assert text.startswith("refused (") and "Input should" not in text
        assert "Traceback" not in text and "\x1b" not in text and "\0" not in text
        assert len(text) < 5000 and str(home.data) not in text
    server.send("tools/call", {"name": 5}, 1)
    assert server.answer(1)["error"]["code"] == -32602
    server.send("no/such", {}, 2)
    assert server.answer(2)["error"]["code"] == -32601
    server.call("list_kernels", {}, 3)
    assert not server.answer(3)["result"].get("isError")
    assert "Traceback" not in server.end() and server.process.returncode == 0


@pytest.mark.slow
def test_a_client_that_is_gone_in_the_middle_of_a_judgement_leaves_no_process(home):
    server = Server(home)
    for number in range(3):
        source = f"{RIGHT}// left alone {number}\n"
        server.call("submit", {**ENTRY, "source": source, "entry": "mine"}, 10 + number)
    pid = server.process.pid
    below = until(lambda: children(pid), "something is judged")
    words = server.end()
    assert server.process.returncode == 0 and "Traceback" not in words, words
    until(lambda: not any(map(is_alive, below)), "its children end")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_server_leaves_no_process_and_loses_nothing(home, number):
    server, source = Server(home), f"{RIGHT}// killed by {number}\n"
    server.call("submit", {**ENTRY, "source": source, "entry": "mine"}, 1)
    below = until(lambda: children(server.process.pid), "something is judged")
    os.kill(server.process.pid, number)
    server.end()
    until(lambda: not any(map(is_alive, below)), "its children end")
    again = Server(home)
    again.call("submit", {**ENTRY, "source": source, "entry": "mine"}, 1)
    assert again.answer(1)["result"]["structuredContent"]["verdict"] == "green"
    again.end()


@pytest.mark.slow
def test_calls_at_once_over_the_sdk_are_all_answered(home):
    import anyio
    import mcp

    server = mcp.StdioServerParameters(
        command=sys.executable,
        args=["-m", "greenfast", "mcp"],
        env=home.environment,
        cwd=home.data,
    )
    answers: dict[int, Any] = {}

    async def talk() -> None:
        async with mcp.Client(server) as client:

            async def call(number: int, tool: str, arguments: dict[str, Any]) -> None:
                answers[number] = await client.call_tool(tool, arguments)

            async with anyio.create_task_group() as tasks:
                for number in range(3):
                    source = f"{RIGHT}// at once {number % 2}\n"
                    arguments = {**ENTRY, "source": source, "entry": "mine"}
                    tasks.start_soon(call, number, "submit", arguments)
                for number, (tool, arguments, _) in enumerate(REFUSED, 10):
                    if "\\ud" not in json.dumps(arguments):  # the SDK itself refuses surrogates
                        tasks.start_soon(call, number, tool, arguments)

    run_async(talk())
    reports = [answers[number].structured_content for number in range(3)]
    assert [report["verdict"] for report in reports] == ["green"] * 3
    assert len({report["id"] for report in reports}) == 2
    assert all(answer.is_error for number, answer in answers.items() if number >= 10)
