"""Runs a CUDA program and serves its CUDA calls.

The program and its child processes load the shim library instead of CUDA's (``shim_library``). Each
process that uses it connects to a socket and has a virtual GPU of its own (``guest_process``).
Requests are served one at a time, in the thread that called ``run``, so that Ctrl-C stops a kernel.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import struct
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import DeviceError, TilewrightError
from ..vm import Machine
from ..vm.state.global_memory import GlobalMemory
from .guest_process import LAUNCH, GuestProcess, RequestError, status
from .shim_library import LIBRARY_NAMES, CompileCached, install

VARIABLE = "TILEWRIGHT_CUDART"
SIGNALLED = 128  # plus the signal's number: the exit code, as in shells
_HEADER = struct.Struct("<II")  # request and its bytes; status and the reply's bytes
_GRACE = 2.0  # seconds from SIGTERM to SIGKILL

Report = Callable[[str], object]


def run(
    command: Sequence[str],
    machine: Callable[[GlobalMemory], Machine],
    keep: CompileCached,
    say: Report,
) -> int:
    """Run a program with its arguments; returns its exit code.

    ``machine`` makes a machine for a memory, ``keep`` caches the compiled library, ``say`` is
    called with the errors of kernels and calls. Raises DeviceError if the program can't be started.
    """
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        install(Path(folder), keep)
        with _Server(Path(folder), machine, say) as server:
            try:
                process = subprocess.Popen(list(command), env=_environment(Path(folder)))
            except OSError as error:
                raise DeviceError(f"{command[0]} can't be started: {error.strerror}") from None
            try:
                server.serve(process)
            finally:
                _end(process)
    code = process.returncode
    if code < 0:
        say(f"{command[0]} ended by signal {-code} ({signal.strsignal(-code)})")
    return SIGNALLED - code if code < 0 else code


def _environment(folder: Path) -> dict[str, str]:
    """The program's environment, in which the loader finds the shim library first."""
    paths = [str(folder), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    preload = [str(folder / LIBRARY_NAMES[0]), *filter(None, [os.environ.get("LD_PRELOAD")])]
    return {
        **os.environ,
        "LD_LIBRARY_PATH": ":".join(paths),
        "LD_PRELOAD": ":".join(preload),
        VARIABLE: str(folder / "socket"),
    }


def _end(process: subprocess.Popen[bytes]) -> None:
    """Terminate the program if it still runs, kill it after ``_GRACE`` seconds, and wait."""
    try:
        process.terminate()
        process.wait(_GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class _Disconnected(Exception):
    """The process has closed its connection."""


class _Server:
    def __init__(
        self, folder: Path, machine: Callable[[GlobalMemory], Machine], say: Report
    ) -> None:
        self.machine, self.say = machine, say
        self.reported: set[str] = set()
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(folder / "socket"))
        self.listener.listen()
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ, self._accept)

    def __enter__(self) -> _Server:
        return self

    def __exit__(self, *_: object) -> None:
        for key in list(self.selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self.selector.close()

    def serve(self, process: subprocess.Popen[bytes]) -> None:
        """Serve requests until the program has ended."""
        ended = os.pidfd_open(process.pid)
        try:
            self.selector.register(ended, selectors.EVENT_READ)
            while process.poll() is None:
                for key, _ in self.selector.select():
                    if key.data:
                        key.data()
        finally:
            self.selector.unregister(ended)
            os.close(ended)

    def _accept(self) -> None:
        """Accept a process, and send it the file of its memory."""
        connection, _ = self.listener.accept()
        guest = GuestProcess(self.machine, lambda *_: _check_connected(connection))
        try:
            socket.send_fds(connection, [b"m"], [guest.file])
        except OSError:  # it has ended already, which the first request will show
            pass
        os.close(guest.file)  # the memory has mapped it
        self.selector.register(
            connection, selectors.EVENT_READ, partial(self._serve_request, connection, guest)
        )

    def _serve_request(self, connection: socket.socket, guest: GuestProcess) -> None:
        try:
            self._answer(connection, guest)
        except (_Disconnected, OSError):
            self.selector.unregister(connection)
            connection.close()

    def _answer(self, connection: socket.socket, guest: GuestProcess) -> None:
        what, size = _HEADER.unpack(_receive(connection, _HEADER.size))
        payload = _receive(connection, size)
        code, answer = 0, b""
        try:
            answer = guest.answer(what, payload)
        except RequestError as error:
            code = error.status
        except TilewrightError as error:
            code, answer = status(error), guest.launched if what == LAUNCH else b""
            self._say_once(str(error))
        connection.sendall(_HEADER.pack(code, len(answer)) + answer)

    def _say_once(self, message: str) -> None:
        """Report a message once: a program may repeat a launch that fails."""
        if message not in self.reported:
            self.reported.add(message)
            self.say(message)


def _receive(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = connection.recv(min(size - len(data), 1 << 20))
        if not more:
            raise _Disconnected
        data += more
    return bytes(data)


def _check_connected(connection: socket.socket) -> None:
    """Raise _Disconnected, which ends the launch, if the process no longer waits for it."""
    try:
        if not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
            raise _Disconnected
    except BlockingIOError:
        return


def machine_factory(arch: str, seed: int, **options: Any) -> Callable[[GlobalMemory], Machine]:
    """The ``machine`` argument of ``run``: makes equal machines with different memories."""
    return lambda memory: Machine(arch, seed, memory=memory, **options)
