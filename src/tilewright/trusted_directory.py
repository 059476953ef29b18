"""Directories that nobody but this user (and root) can change, opened level by level.

Each level is opened relative to the one above it, without following symbolic links, and checked
once it is open: what was checked cannot be exchanged afterwards. Where the system has no users of
this kind (not POSIX), paths are used as they are.
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
_LINKS = 40  # symbolic links on the way to a directory, at most


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
        """A name as functions of ``os`` take it."""
        if self._handle is None:
            return str(self.path / name), {}
        return name, {"dir_fd": self._handle}

    def sub(self, name: str, create: bool = False) -> Directory:
        """The subdirectory of this name. Untrusted where it is another user's, or may be written
        by others; OSError where there is none.
        """
        place, at = self._at(name)
        if create:
            with suppress(FileExistsError):
                os.mkdir(place, 0o700, **at)
        if self._handle is None:
            return Directory(self.path / name, None)
        handle = os.open(place, _DIRECTORY, **at)
        found = Directory(self.path / name, handle)
        if not _own(os.fstat(handle)):
            found.close()
            raise UntrustedDirectoryError(f"others may write to {found.path}")
        return found

    def read(self, name: str, fresh: float) -> bytes:
        """The bytes of a file; its time of use is updated where that is ``fresh`` seconds old.
        Untrusted where it is another user's, or may be written by others.
        """
        place, at = self._at(name)
        handle = os.open(place, _FILE, **at)
        with open(handle, "rb") as file:
            state = os.fstat(handle)
            if not stat.S_ISREG(state.st_mode) or (self._handle is not None and not _own(state)):
                raise UntrustedDirectoryError(f"others may write to {self.path / name}")
            data = file.read()
            if _age(state) > fresh:
                with suppress(OSError):
                    os.utime(handle if os.utime in os.supports_fd else place)
        return data

    def write(self, name: str, data: bytes) -> None:
        """Make a file appear whole, or not at all."""
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
        """Delete a file; what is not there is gone."""
        place, at = self._at(name)
        with suppress(OSError):
            os.unlink(place, **at)

    def age(self, name: str) -> float | None:
        """Seconds since a file was last used; None where there is none."""
        place, at = self._at(name)
        try:
            return _age(os.stat(place, follow_symlinks=False, **at))
        except OSError:
            return None

    def __iter__(self) -> Iterator[tuple[str, os.stat_result]]:
        """The names in it with their states; what vanishes meanwhile is passed over."""
        for name in os.listdir(self.path if self._handle is None else self._handle):
            place, at = self._at(name)
            with suppress(OSError):
                yield name, os.stat(place, follow_symlinks=False, **at)


def is_abandoned(name: str) -> bool:
    """Whether a file is one that a killed ``write`` left."""
    return name.startswith(_NEW)


def open_directory(path: Path) -> Directory:
    """The directory at a path, created with its parents where there is none.

    Untrusted where another user may exchange it: each directory above belongs to this user or to
    root, and is writable by no others (or sticky, as /tmp is); the directory itself is this user's.
    """
    if not POSIX:
        path.mkdir(parents=True, exist_ok=True)
        return Directory(path, None)
    found = _walk(Path(os.path.abspath(path)))
    if not _own(os.fstat(found._handle or 0)):
        found.close()
        raise UntrustedDirectoryError(f"others may write to {found.path}")
    return found


def _walk(path: Path) -> Directory:
    """Open one component after another from the root on."""
    opened = [Directory(Path("/"), os.open("/", _DIRECTORY))]
    waiting, links = [*reversed(path.parts[1:])], 0
    try:
        while waiting:
            name, here = waiting.pop(), opened[-1]
            _check_above(here)
            if name == ".." and len(opened) > 1:
                opened.pop().close()
            elif (target := _link(here, name)) is not None:
                links += 1
                if links > _LINKS:
                    raise OSError(f"too many symbolic links on the way to {path}")
                waiting += [p for p in reversed(target.parts) if p not in ("/", ".")]
                while target.is_absolute() and len(opened) > 1:
                    opened.pop().close()
            elif name not in ("..", "."):
                opened.append(_entered(here, name))
        return opened.pop()
    finally:
        for directory in opened:
            directory.close()


def _entered(here: Directory, name: str) -> Directory:
    """A subdirectory, created where there is none."""
    assert here._handle is not None
    with suppress(FileExistsError, PermissionError):
        os.mkdir(name, 0o700, dir_fd=here._handle)
    return Directory(here.path / name, os.open(name, _DIRECTORY, dir_fd=here._handle))


def _link(here: Directory, name: str) -> Path | None:
    """Where a symbolic link leads; None for what is none. Untrusted for another user's."""
    assert here._handle is not None
    try:
        state = os.stat(name, dir_fd=here._handle, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISLNK(state.st_mode):
        return None
    if state.st_uid not in (0, os.geteuid()):
        raise UntrustedDirectoryError(f"{here.path / name} is another user's symbolic link")
    return Path(os.readlink(name, dir_fd=here._handle))


def _check_above(directory: Directory) -> None:
    """Raises Untrusted where another user may rename or replace what is in a directory."""
    s = os.fstat(directory._handle or 0)
    others = s.st_mode & 0o022 and not s.st_mode & stat.S_ISVTX
    if s.st_uid not in (0, os.geteuid()) or others:
        raise UntrustedDirectoryError(f"others may write to {directory.path}")


def _own(state: os.stat_result) -> bool:
    """Whether only this user can write to it (and root)."""
    return state.st_uid == os.geteuid() and not state.st_mode & 0o022


def _age(state: os.stat_result) -> float:
    return time.time() - state.st_mtime
