"""Atomic writes of output files."""

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
    """Write a file atomically; ``-`` is standard output for text.

    Raises TilewrightError if it can't be written or is not a regular file (a device, a pipe).
    """
    if name == "-" and isinstance(data, str):
        sys.stdout.write(data)
        sys.stdout.flush()
        return
    with _write_errors(name):
        _replace(_writable_path(name), data.encode() if isinstance(data, str) else data)


@contextmanager
def exclusive_lock(name: str) -> Iterator[None]:
    """Hold an exclusive lock on the folder of a file, so that two commands update the file in
    turn. Does nothing on systems without ``flock``.
    """
    with _write_errors(name):
        folder = os.open(_writable_path(name).parent, os.O_RDONLY)
    try:
        if fcntl is not None:
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def check_writable(name: str) -> None:
    """Raise the error that ``write`` would raise, before there is data to write."""
    with _write_errors(name):
        folder = _writable_path(name).parent
        if not folder.is_dir():
            raise FileNotFoundError(None, f"folder {folder} does not exist")
        if not os.access(folder, os.W_OK):
            raise PermissionError(None, f"folder {folder} is not writable")


@contextmanager
def _write_errors(name: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise TilewrightError(f"can't write {name!r}: {reason}") from None


def _writable_path(name: str) -> Path:
    path = Path(os.path.realpath(name))
    if path.is_dir() or not name or name.endswith(os.sep):
        raise TilewrightError(
            f"output must be a file, got {name!r}", hint="name a file, not a folder"
        )
    if path.exists() and not path.is_file():
        raise TilewrightError(
            f"output must be a regular file, got {name}", hint="- writes to standard output"
        )
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(None, "the file is read-only")
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
