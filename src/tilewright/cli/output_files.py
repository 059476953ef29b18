"""Files that the command writes: whole or not at all."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import TilewrightError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def write(name: str, data: str | bytes) -> None:
    """Write a file in one step, so that nobody sees half of it; ``-`` is standard output for text.

    TilewrightError where it can't be written, or is something else than a file: a device, a pipe.
    """
    if name == "-" and isinstance(data, str):
        sys.stdout.write(data)
        sys.stdout.flush()
        return
    with _named(name):
        _replace(_place(name), data.encode() if isinstance(data, str) else data)


@contextmanager
def alone(name: str) -> Iterator[None]:
    """Commands that change a file one after another: who comes second waits. Its folder is locked,
    where the system can do that.
    """
    with _named(name):
        folder = os.open(_place(name).parent, os.O_RDONLY)
    try:
        if fcntl is not None:
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def check(name: str) -> None:
    """Raise what ``write`` would, as far as can be told before there is anything to write."""
    with _named(name):
        folder = _place(name).parent
        if not folder.is_dir():
            raise FileNotFoundError(None, f"there is no folder {folder}")
        if not os.access(folder, os.W_OK):
            raise PermissionError(None, f"nothing can be written in {folder}")


@contextmanager
def _named(name: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise TilewrightError(f"can't write {name!r}: {reason}") from None


def _place(name: str) -> Path:
    path = Path(os.path.realpath(name))
    if path.is_dir() or not name or name.endswith(os.sep):
        raise TilewrightError(f"{name or 'nothing'} is no file", hint="name one in a folder")
    if path.exists() and not path.is_file():
        raise TilewrightError(f"{name} is no plain file", hint="- writes to standard output")
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(None, "it is read-only")
    return path


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name[:64]}.{os.getpid()}.part")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
        if path.exists():
            temporary.chmod(path.stat().st_mode & 0o7777)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
