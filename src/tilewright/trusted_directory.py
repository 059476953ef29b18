"""Directories that only this user (and root) can change, opened level by level.

Each level is opened relative to the one above it, without following symbolic links, and checked
after opening, so a checked directory cannot be replaced afterwards. On systems other than POSIX,
paths are used without checks.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

POSIX = os.name == "posix" and os.open in os.supports_dir_fd
_DIRECTORY = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | os.O_RDONLY
_FILE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | os.O_RDONLY
_NEW = ".new-"
_LINKS = 40  # maximum number of symbolic links in a path


class UntrustedDirectoryError(OSError):
    """Another user may write here."""


class Directory:
    """An open directory; ``close`` it or use it as a context manager."""

    def __init__(self, path: Path, handle: int | None) -> None:
        self.path, self._handle = path, handle

    def __enter__(self) -> Directory:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _at(self, name: str) -> tuple[str, dict[str, Any]]:
        """Path and ``dir_fd`` argument of a name for functions of ``os``."""
        if self._handle is None:
            return str(self.path / name), {}
        return name, {"dir_fd": self._handle}

    def sub(self, name: str, create: bool = False) -> Directory:
        """The subdirectory of this name.

        Raises UntrustedDirectoryError if another user owns it or may write to it, OSError if it
        does not exist.
        """
        path, at = self._at(name)
        if create:
            with suppress(FileExistsError):
                os.mkdir(path, 0o700, **at)
        if self._handle is None:
            return Directory(self.path / name, None)
        handle = os.open(path, _DIRECTORY, **at)
        directory = Directory(self.path / name, handle)
        if not _own(os.fstat(handle)):
            directory.close()
            raise UntrustedDirectoryError(f"others may write to {directory.path}")
        return directory

    def read(self, name: str, fresh: float) -> bytes:
        """The bytes of a file; its time of use is updated if it is older than ``fresh`` seconds.

        Raises UntrustedDirectoryError if another user owns it or may write to it.
        """
        path, at = self._at(name)
        handle = os.open(path, _FILE, **at)
        with open(handle, "rb") as file:
            state = os.fstat(handle)
            if not stat.S_ISREG(state.st_mode) or (self._handle is not None and not _own(state)):
                raise UntrustedDirectoryError(f"others may write to {self.path / name}")
            data = file.read()
            if _age(state) > fresh:
                with suppress(OSError):
                    os.utime(handle if os.utime in os.supports_fd else path)
        return data

    def write(self, name: str, data: bytes) -> None:
        """Create a file atomically."""
        new, at = self._at(f"{_NEW}{os.getpid()}-{os.urandom(8).hex()}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        handle = os.open(new, flags, 0o600, **at)
        try:
            with open(handle, "wb") as file:
                file.write(data)
            ends = {"src_dir_fd": self._handle, "dst_dir_fd": self._handle} if at else {}
            os.replace(new, self._at(name)[0], **ends)
        except BaseException:
            with suppress(OSError):
                os.unlink(new, **at)
            raise

    def remove(self, name: str) -> None:
        """Delete a file if it exists."""
        path, at = self._at(name)
        with suppress(OSError):
            os.unlink(path, **at)

    def age(self, name: str) -> float | None:
        """Seconds since a file was last used; None if it does not exist."""
        path, at = self._at(name)
        try:
            return _age(os.stat(path, follow_symlinks=False, **at))
        except OSError:
            return None

    def __iter__(self) -> Iterator[tuple[str, os.stat_result]]:
        """The names in the directory with their ``stat`` results; skips files deleted meanwhile."""
        for name in os.listdir(self.path if self._handle is None else self._handle):
            path, at = self._at(name)
            with suppress(OSError):
                yield name, os.stat(path, follow_symlinks=False, **at)


def is_abandoned(name: str) -> bool:
    """Whether the file is the temporary file of an interrupted ``write``."""
    return name.startswith(_NEW)


def open_directory(path: Path) -> Directory:
    """Open the directory at a path, and create it and its parents if they do not exist.

    Raises UntrustedDirectoryError if another user could replace it: each parent must belong to this
    user or root and not be writable by others (unless sticky, like /tmp); the directory itself must
    belong to this user.
    """
    if not POSIX:
        path.mkdir(parents=True, exist_ok=True)
        return Directory(path, None)
    directory = _walk(Path(os.path.abspath(path)))
    if not _own(os.fstat(directory._handle or 0)):
        directory.close()
        raise UntrustedDirectoryError(f"others may write to {directory.path}")
    return directory


def _walk(path: Path) -> Directory:
    """Open the path's components one by one, starting at the root."""
    opened = [Directory(Path("/"), os.open("/", _DIRECTORY))]
    waiting, links = [*reversed(path.parts[1:])], 0
    try:
        while waiting:
            name, parent = waiting.pop(), opened[-1]
            _check_parent(parent)
            if name == ".." and len(opened) > 1:
                opened.pop().close()
            elif (target := _link(parent, name)) is not None:
                links += 1
                if links > _LINKS:
                    raise OSError(f"too many symbolic links in {path}")
                waiting += [p for p in reversed(target.parts) if p not in ("/", ".")]
                while target.is_absolute() and len(opened) > 1:
                    opened.pop().close()
            elif name not in ("..", "."):
                opened.append(_subdirectory(parent, name))
        return opened.pop()
    finally:
        for directory in opened:
            directory.close()


def _subdirectory(parent: Directory, name: str) -> Directory:
    """Open a subdirectory, and create it if it does not exist."""
    assert parent._handle is not None
    with suppress(FileExistsError, PermissionError):
        os.mkdir(name, 0o700, dir_fd=parent._handle)
    return Directory(parent.path / name, os.open(name, _DIRECTORY, dir_fd=parent._handle))


def _link(parent: Directory, name: str) -> Path | None:
    """The target of a symbolic link; None if the name is not a link.

    Raises UntrustedDirectoryError for a link of another user.
    """
    assert parent._handle is not None
    try:
        state = os.stat(name, dir_fd=parent._handle, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISLNK(state.st_mode):
        return None
    if state.st_uid not in (0, os.geteuid()):
        raise UntrustedDirectoryError(f"{parent.path / name} is another user's symbolic link")
    return Path(os.readlink(name, dir_fd=parent._handle))


def _check_parent(directory: Directory) -> None:
    """Raise UntrustedDirectoryError if another user may rename or replace entries."""
    s = os.fstat(directory._handle or 0)
    writable = s.st_mode & 0o022 and not s.st_mode & stat.S_ISVTX
    if s.st_uid not in (0, os.geteuid()) or writable:
        raise UntrustedDirectoryError(f"others may write to {directory.path}")


def _own(state: os.stat_result) -> bool:
    """Whether only this user (and root) can write to the file."""
    return state.st_uid == os.geteuid() and not state.st_mode & 0o022


def _age(state: os.stat_result) -> float:
    return time.time() - state.st_mtime
