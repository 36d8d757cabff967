"""The demo tells why its service does not come up: the service's own words, or where it hangs."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from greenfast.client import Client
from greenfast.search.errors import UsageError

SCRIPTS = Path(__file__).parents[2] / "scripts"
LONG_S = 60.0  # a deadline that a loaded machine does not reach


@pytest.fixture
def demo(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    import demo_service

    return demo_service


@pytest.fixture
def started(demo, tmp_path):
    """`started(command)`: the process and its log; ended with its group afterwards."""
    processes = []

    def begin(command):
        processes.append(demo.start(command, tmp_path / "service.log"))
        return processes[-1], tmp_path / "service.log"

    yield begin
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def refused() -> None:
    raise UsageError("nobody answers", code="no_service")


def why(demo, process, log, ask=refused, deadline_s=LONG_S) -> UsageError:
    with pytest.raises(UsageError) as raised:
        demo.await_ready(process, log, ask, deadline_s, lambda line: None)
    return raised.value


def test_a_service_that_lacks_a_package_is_quoted_at_once(demo, started):
    """The service ends before it listens, with a traceback in its log."""
    code = (
        "import sys; sys.modules['uvicorn'] = None; "
        "sys.argv = ['greenfast', 'serve', '--port', '0', '--workers', '0']; "
        "import runpy; runpy.run_module('greenfast', run_name='__main__')"
    )
    begin = time.monotonic()
    error = why(demo, *started([sys.executable, "-c", code]))
    assert error.code == "service_ended" and time.monotonic() - begin < LONG_S
    assert "uvicorn" in str(error) and "exit code" in str(error) and "service.log" in str(error)


@pytest.mark.slow
def test_a_port_that_is_taken_is_the_services_own_sentence(demo, started):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        client = Client(f"http://127.0.0.1:{port}", timeout_s=0.2)
        error = why(demo, *started(demo.serve_command(port)), lambda: client.wait_until_ready(0.0))
        client.close()
    assert error.code == "service_ended" and f"port {port} on 127.0.0.1 is in use" in str(error)


def test_a_service_that_hangs_shows_where(demo, started):
    code = (
        "import time\n"
        "def importing_something_slow():\n"
        "    print('about to', flush=True)\n"
        "    time.sleep(600)\n"
        "importing_something_slow()\n"
    )
    process, log = started([sys.executable, "-X", "faulthandler", "-c", code])
    while "about to" not in log.read_text():
        time.sleep(0.02)
    error = why(demo, process, log, deadline_s=0.3)
    assert error.code == "no_service"
    assert "did not answer within 0.3 s" in str(error)
    assert "importing_something_slow" in str(error)


def test_a_service_that_was_killed_names_the_signal(demo, started):
    process, log = started([sys.executable, "-c", "import time; time.sleep(600)"])
    process.kill()
    process.wait()
    assert "signal SIGKILL" in str(why(demo, process, log))
    assert "(its log is empty)" in demo.tail(log)


def test_a_service_that_answers_is_returned_to(demo, started):
    process, log = started([sys.executable, "-c", "import time; time.sleep(600)"])
    answers = iter([True, False])

    def ask() -> None:
        if next(answers):
            refused()

    demo.await_ready(process, log, ask, LONG_S, lambda line: None)
    assert process.poll() is None


@pytest.mark.slow
def test_it_comes_up_as_root_without_home(demo, tmp_path):
    """No HOME, no terminal, hardly any environment: what a bare container gives."""
    environment = {"PATH": os.environ["PATH"], "GREENFAST_DATA": str(tmp_path / "data")}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path / "service.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*demo.serve_command(port), "--workers", "0"],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
            env=environment,
        )
    try:
        with Client(f"http://127.0.0.1:{port}") as client:
            demo.await_ready(
                process, log, lambda: client.wait_until_ready(0.0), LONG_S, lambda line: None
            )
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
