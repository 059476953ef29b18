"""Runs a CUDA program on this machine, whose calls of CUDA come here.

The program and whatever it starts load our library in the place of CUDA's (``library``); each
process that calls it connects to a socket and has a virtual GPU of its own (``guest``). One request
is answered at a time, in the thread that called ``run``, so that Ctrl-C stops a kernel.
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
SIGNALLED = 128  # and the signal's number: the exit code, as shells say it
_HEADER = struct.Struct("<II")  # request and bytes; status and bytes
_GRACE = 2.0  # seconds that a stopped program has to end

Report = Callable[[str], object]


def run(
    command: Sequence[str],
    machine: Callable[[GlobalMemory], Machine],
    keep: CompileCached,
    say: Report,
) -> int:
    """Run a program with its arguments to its end; its exit code.

    ``machine`` makes a machine with a memory, ``keep`` keeps the library once compiled, ``say``
    hears of what went wrong in kernels and calls. DeviceError where the program can't be run.
    """
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        install(Path(folder), keep)
        with _Server(Path(folder), machine, say) as server:
            try:
                process = subprocess.Popen(list(command), env=_environment(Path(folder)))
            except OSError as error:
                raise DeviceError(f"{command[0]} can't be run: {error.strerror}") from None
            try:
                server.serve(process)
            finally:
                _end(process)
    code = process.returncode
    if code < 0:
        say(f"{command[0]} ended by signal {-code} ({signal.strsignal(-code)})")
    return SIGNALLED - code if code < 0 else code


def _environment(folder: Path) -> dict[str, str]:
    """The program's: the loader finds our library before any other."""
    paths = [str(folder), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    preload = [str(folder / LIBRARY_NAMES[0]), *filter(None, [os.environ.get("LD_PRELOAD")])]
    return {
        **os.environ,
        "LD_LIBRARY_PATH": ":".join(paths),
        "LD_PRELOAD": ":".join(preload),
        VARIABLE: str(folder / "socket"),
    }


def _end(process: subprocess.Popen[bytes]) -> None:
    """Wait for a program that has ended, or tell it to; one that does not listen is killed."""
    try:
        process.terminate()
        process.wait(_GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class _Disconnected(Exception):
    """The process that asked has ended."""


class _Server:
    def __init__(
        self, folder: Path, machine: Callable[[GlobalMemory], Machine], say: Report
    ) -> None:
        self.machine, self.say = machine, say
        self.said: set[str] = set()
        self.door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.door.bind(str(folder / "socket"))
        self.door.listen()
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.door, selectors.EVENT_READ, self._accept)

    def __enter__(self) -> _Server:
        return self

    def __exit__(self, *_: object) -> None:
        for key in list(self.selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self.selector.close()

    def serve(self, process: subprocess.Popen[bytes]) -> None:
        """Answer until the program has ended."""
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
        """A process: it gets its memory's file, then it asks."""
        line, _ = self.door.accept()
        guest = GuestProcess(self.machine, lambda *_: _check(line))
        try:
            socket.send_fds(line, [b"m"], [guest.file])
        except OSError:  # it has ended already, as the first question shows
            pass
        os.close(guest.file)  # the memory keeps it
        self.selector.register(
            line, selectors.EVENT_READ, partial(self._serve_request, line, guest)
        )

    def _serve_request(self, line: socket.socket, guest: GuestProcess) -> None:
        try:
            self._answer(line, guest)
        except (_Disconnected, OSError):
            self.selector.unregister(line)
            line.close()

    def _answer(self, line: socket.socket, guest: GuestProcess) -> None:
        what, size = _HEADER.unpack(_receive(line, _HEADER.size))
        payload = _receive(line, size)
        code, answer = 0, b""
        try:
            answer = guest.answer(what, payload)
        except RequestError as error:
            code = error.status
        except TilewrightError as error:
            code, answer = status(error), guest.launched if what == LAUNCH else b""
            self._say_once(str(error))
        line.sendall(_HEADER.pack(code, len(answer)) + answer)

    def _say_once(self, message: str) -> None:
        """A program may launch again and again what can't be run."""
        if message not in self.said:
            self.said.add(message)
            self.say(message)


def _receive(line: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = line.recv(min(size - len(data), 1 << 20))
        if not more:
            raise _Disconnected
        data += more
    return bytes(data)


def _check(line: socket.socket) -> None:
    """Whether a process still waits for its kernel; ``_Gone`` ends the launch."""
    try:
        if not line.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
            raise _Disconnected
    except BlockingIOError:
        return


def machine_factory(arch: str, seed: int, **how: Any) -> Callable[[GlobalMemory], Machine]:
    """For ``run``: makes machines that are alike but for their memory."""
    return lambda memory: Machine(arch, seed, memory=memory, **how)
