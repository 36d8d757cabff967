"""The serving process: a socket, uvicorn, and worker processes that end with it."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from greenfast.app.service.application import create_app
from greenfast.app.service.connections import bounded_protocol, raise_descriptor_limit
from greenfast.app.settings import Settings, is_loopback
from greenfast.app.views.log_pauses import RepeatedWarnings
from greenfast.app.views.own_kernels import own_folders, own_problems
from greenfast.app.views.terminal import say
from greenfast.app.wiring import Services
from greenfast.search.children import kill_group, safe_path
from greenfast.search.errors import UsageError
from greenfast.search.targets.emulator.isolation import isolation

CLOSE_STREAMS_S = 3  # for responses in progress when the service ends
CLOSE_SLACK_S = 2  # for their handlers to notice that the client is gone
FIRST_RESTART_S, LONGEST_RESTART_S = 0.5, 30.0
LONG_LIFE_S = 60.0  # a worker that lived longer is restarted without a growing pause
LOOK_S = 0.2
SLACK_S = 5.0  # added to a worker's draining time


def run_server(settings: Settings) -> int:
    """Serve until a signal; UsageError when the address cannot be used."""
    if not is_loopback(settings.host) and not settings.token:
        raise UsageError(
            f"listening on {settings.host} needs a token, since others can reach it",
            code="token_needed",
            mend="set GREENFAST_TOKEN, or listen on 127.0.0.1",
        )
    require_sandbox(settings)
    services = Services(settings)
    listener = listen(settings.host, settings.port)
    supervisor = Supervisor(settings)
    try:
        config = uvicorn.Config(
            create_app(services),
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=CLOSE_STREAMS_S + CLOSE_SLACK_S,
            timeout_keep_alive=10,
            proxy_headers=False,
            http=bounded_protocol(
                settings.request_timeout_s, min(settings.connections, raise_descriptor_limit())
            ),
        )
        logging.getLogger("uvicorn.error").addFilter(RepeatedWarnings())
        _Server(config, services, supervisor, url_of(listener)).run(sockets=[listener])
    finally:
        supervisor.close()
        listener.close()
        services.close()
    return 0


def require_sandbox(settings: Settings) -> None:
    """UsageError when others could send candidates that this kernel does not confine."""
    if is_loopback(settings.host) or settings.accept_weak_sandbox:
        return
    machine = isolation()
    if not machine.is_complete:
        raise UsageError(
            f"this kernel confines candidates too weakly to serve others: {machine.not_held}",
            code="weak_sandbox",
            mend="listen on 127.0.0.1, use Linux 5.13 or newer, or accept the risk with "
            "--accept-weak-sandbox",
        )


def listen(host: str, port: int) -> socket.socket:
    """A bound socket; UsageError `port_in_use`, `cannot_listen`."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except (OSError, UnicodeError) as error:
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            raise UsageError(
                f"port {port} on {host} is in use",
                code="port_in_use",
                mend="stop the program that uses it, or choose another with --port",
            ) from error
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"cannot listen on {host} port {port}: {reason}",
            code="cannot_listen",
            mend="choose another --host or --port",
        ) from error
    return listener


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


class _Server(uvicorn.Server):
    """uvicorn that prints its URL and starts the workers, and ends event streams on shutdown."""

    def __init__(
        self, config: uvicorn.Config, services: Services, supervisor: Supervisor, url: str
    ) -> None:
        super().__init__(config)
        self._services, self._supervisor, self._url = services, supervisor, url

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As in uvicorn, but the signal is not raised again: that would skip the clean-up."""
        before = {
            number: signal.signal(number, self.handle_exit)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._supervisor.start()
        for folder in own_folders(self._services.catalogue):
            say(f"greenfast: kernels of your own in {folder}")
        for problem in own_problems(self._services.catalogue):
            say(f"greenfast: left out: {problem}")
        print(f"greenfast serves {self._url}", flush=True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._services.stopping.set()
        self._supervisor.ask()
        asyncio.get_running_loop().call_later(CLOSE_STREAMS_S, self._hang_up)
        await super().shutdown(sockets=sockets)

    def _hang_up(self) -> None:
        """Leave clients that do not read. uvicorn would cancel them, with a traceback each."""
        for connection in list(self.server_state.connections):
            connection.transport.abort()


class Supervisor:
    """Keeps `settings.workers` worker processes running.

    Each worker holds the reading end of a pipe whose writing end only this process has. When this
    process ends, for whatever reason, the pipe closes and the workers end.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stop = threading.Event()
        self._lifeline = os.pipe()
        self._threads = [
            threading.Thread(target=self._keep, name=f"worker {number}", daemon=True)
            for number in range(settings.workers)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def ask(self) -> None:
        """Tell the workers to end; does not wait."""
        self._stop.set()

    def close(self) -> None:
        """End the workers and wait for them."""
        self.ask()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        for descriptor in self._lifeline:
            os.close(descriptor)

    def _keep(self) -> None:
        """One worker after another, with a growing pause while they die young."""
        pause_s = FIRST_RESTART_S
        while not self._stop.is_set():
            started = time.monotonic()
            process = self._start()
            while process.poll() is None and not self._stop.wait(LOOK_S):
                pass
            if self._stop.is_set():
                self._end(process)
                return
            lived_s = time.monotonic() - started
            pause_s = (
                FIRST_RESTART_S if lived_s > LONG_LIFE_S else min(2 * pause_s, LONGEST_RESTART_S)
            )
            say(
                f"greenfast: a worker ended with {process.returncode}; "
                f"another starts in {pause_s:g} s"
            )
            self._stop.wait(pause_s)

    def _start(self) -> subprocess.Popen[bytes]:
        reading_end = self._lifeline[0]
        settings = self._settings
        environment = {
            **os.environ,
            **safe_path(),
            "GREENFAST_DATA": str(settings.data.absolute()),
            "GREENFAST_TOKEN": "",
            "GREENFAST_SUBMIT_TOKEN": "",
        }
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "greenfast", "worker", "--lifeline", str(reading_end)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(reading_end,),
            env=environment,
            start_new_session=True,
        )

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.terminate()
        try:
            process.wait(self._settings.drain_s + SLACK_S)
        except subprocess.TimeoutExpired:
            process.kill()
        kill_group(process)  # with the children that it had started
