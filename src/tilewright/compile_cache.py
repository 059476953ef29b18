"""The compile cache on disk: bytes by kind and key.

One file holds one entry, with a checksum of key and value. Files are created by an atomic rename,
so processes need no lock; a damaged file is deleted and created again. If the disk is full or not
writable, the package works without a cache, after one warning.

Entries include machine code that is executed, so every directory and file on the path to an entry
must be writable by this user only (``trusted_directory.py``).
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from weakref import WeakValueDictionary

from .errors import warn
from .trusted_directory import Directory, is_abandoned, open_directory

LIMIT = 1 << 30  # bytes
OFF = ("off", "0", "no", "false")  # values of the environment variable that disable the cache
_MAGIC = b"tilewright cache 1\n"
_DIGEST = hashlib.sha256
_DIGEST_BYTES = 32
_TRIM_TO = 0.8  # of the limit: trimming reads the whole folder, so it should be rare
_TRIM_AFTER = 0.1  # of the limit, written by one process
_TRIMMED = ".trimmed"  # its modification time is that of the last trimming
_FRESH = 3600.0  # seconds before a use is recorded again, or an abandoned file is deleted
_KIND = re.compile(r"[a-z0-9_-]+")


class CacheWarning(RuntimeWarning):
    """Warning that the cache can't be used; every kernel is compiled in each process."""


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """Statistics of the cache, for ``tilewright doctor``."""

    path: Path | None
    entries: int
    bytes: int
    limit: int


def default_path() -> Path | None:
    """The path of the cache, see ``Cache``; None if it is off or there is no home folder."""
    if os.environ.get("TILEWRIGHT_CACHE", "").lower() in OFF:
        return None
    if path := os.environ.get("TILEWRIGHT_CACHE_DIR"):
        return Path(path)
    return home("XDG_CACHE_HOME", ".cache")


def home(variable: str, usual: str) -> Path | None:
    """``tilewright`` in the folder that a variable of the XDG specification names, by default
    ``usual`` in the home folder; None if there is no home folder.
    """
    xdg = os.environ.get(variable, "")
    if os.path.isabs(xdg):  # the specification ignores a relative one
        return Path(xdg, "tilewright")
    try:
        return Path.home() / usual / "tilewright"
    except RuntimeError:
        return None


class Cache:
    """Bytes by (kind, key); the least recently used entries are deleted above ``limit`` bytes.

    ``path`` defaults to ``$TILEWRIGHT_CACHE_DIR``, ``$XDG_CACHE_HOME/tilewright`` or
    ``~/.cache/tilewright``; ``TILEWRIGHT_CACHE=off`` disables the cache. A Cache is thread-safe.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, limit: int = LIMIT) -> None:
        root = default_path() if path is None else Path(path)
        self.limit = limit
        self._root = root / "v1" if root is not None else None
        self._open: Directory | None = None
        self._may_write = True
        self._written = 0  # bytes since the folder's size was last computed
        self._lock = threading.Lock()
        self._making: WeakValueDictionary[str, _Turn] = WeakValueDictionary()

    # --- use

    def get(self, kind: str, key: bytes | str) -> bytes | None:
        """The value; None on a miss or for a damaged entry."""
        folder = self._folder()
        if folder is None:
            return None
        first, name = _location(kind, key)
        try:
            with folder.sub(kind) as level, level.sub(first) as last:
                data = last.read(name, _FRESH)
                value = _unsealed(data, kind, key)
                if value is None:
                    last.remove(name)
        except OSError:
            return None
        return value

    def put(self, kind: str, key: bytes | str, value: bytes) -> None:
        """Store a value, replacing an older one."""
        folder = self._folder()
        if folder is None or not self._may_write:
            return
        data = _seal(value, kind, key)
        first, name = _location(kind, key)
        try:
            try:
                _write(folder, kind, first, name, data)
            except FileNotFoundError:  # the folder has been deleted
                folder = self._reopened()
                if folder is not None:
                    _write(folder, kind, first, name, data)
        except OSError as error:
            self._give_up(f"the cache {self._root} can't be written: {error}")
            return
        if folder is not None:
            self._grown(folder, len(data))

    def get_or_make(self, kind: str, key: bytes | str, make: Callable[[], bytes]) -> bytes:
        """The value; on a miss it is created and stored, by one thread if several request it."""
        name = f"{kind}/{_name(kind, key)}"
        with self._lock:
            turn = self._making.setdefault(name, _Turn())
        with turn.lock:
            value = self.get(kind, key)
            if value is None:
                value = make()
                self.put(kind, key, value)
        return value

    @property
    def enabled(self) -> bool:
        """Whether the cache is enabled."""
        return self._folder() is not None

    def clear(self) -> None:
        """Delete every entry."""
        folder = self._folder()
        for entry in _entries(folder) if folder is not None else ():
            entry.remove()

    def info(self) -> CacheInfo:
        """Path (None without a cache), number of entries, bytes and limit."""
        folder = self._folder()
        sizes = [e.size for e in _entries(folder)] if folder is not None else []
        path = self._root.parent if folder is not None and self._root is not None else None
        return CacheInfo(path, len(sizes), sum(sizes), self.limit)

    # --- maintenance

    def _folder(self) -> Directory | None:
        """The entries' folder, opened on first use; None without a cache."""
        if self._open is None and self._root is not None:
            with self._lock:
                self._open_root()
        return self._open

    def _open_root(self) -> None:
        if self._open is None and self._root is not None:
            try:
                self._open = open_directory(self._root)
            except OSError as error:
                self._root = None
                self._give_up(f"no cache: {error}")

    def _reopened(self) -> Directory | None:
        """Create a deleted folder again (other threads may still use the old descriptor)."""
        with self._lock:
            self._open = None
        return self._folder()

    def _give_up(self, why: str) -> None:
        """Disable writing, with one warning."""
        if self._may_write:
            self._may_write = False
            hint = "compiling each time; set TILEWRIGHT_CACHE_DIR to another folder"
            warn(f"{why} ({hint})", CacheWarning)

    def _grown(self, folder: Directory, size: int) -> None:
        """Trim the folder to its limit once an hour, and after this process has written a tenth of
        the limit.
        """
        with self._lock:
            first = self._written == 0
            self._written += size
            age = folder.age(_TRIMMED) if first else 0.0
            if age is None or age > _FRESH or self._written > _TRIM_AFTER * self.limit:
                self._written = 1
                with suppress(OSError):  # a full disk
                    folder.write(_TRIMMED, b"")
                _trim(folder, self.limit)


@cache
def store() -> Cache:
    """The compile cache of this process."""
    return Cache()


class _Turn:
    """The thread that holds ``lock`` creates the value; the others wait for it."""

    __slots__ = ("__weakref__", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()


# --- one entry ----------------------------------------------------------------------------------


def _name(kind: str, key: bytes | str) -> str:
    assert _KIND.fullmatch(kind), f"bad kind {kind!r}"
    data = key.encode() if isinstance(key, str) else key
    return _DIGEST(data).hexdigest()


def _location(kind: str, key: bytes | str) -> tuple[str, str]:
    """The subfolder in the kind's folder, and the file name."""
    name = _name(kind, key)
    return name[:2], name[2:]


def _checksum(value: bytes, kind: str, key: bytes | str) -> bytes:
    return _DIGEST(f"{kind}/{_name(kind, key)}/".encode() + value).digest()


def _seal(value: bytes, kind: str, key: bytes | str) -> bytes:
    return _MAGIC + _checksum(value, kind, key) + value


def _unsealed(data: bytes, kind: str, key: bytes | str) -> bytes | None:
    """The value in a file's bytes, or None if magic number or checksum don't match."""
    start = len(_MAGIC) + _DIGEST_BYTES
    value = data[start:]
    if data[:start] != _MAGIC + _checksum(value, kind, key):
        return None
    return value


def _write(folder: Directory, kind: str, first: str, name: str, data: bytes) -> None:
    with folder.sub(kind, create=True) as level, level.sub(first, create=True) as last:
        last.write(name, data)


# --- the folder ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Entry:
    """A file two levels below the folder."""

    folder: Directory
    path: tuple[str, str, str]
    size: int
    used: float

    def remove(self) -> None:
        kind, first, name = self.path
        try:
            with self.folder.sub(kind) as level, level.sub(first) as last:
                last.remove(name)
        except OSError:
            return


def _entries(folder: Directory) -> Iterator[_Entry]:
    """All entries, also incomplete ones; skips files that are deleted meanwhile or untrusted."""
    for kind, level in _subs(folder):
        for first, last in _subs(level):
            for name, state in last:
                if stat.S_ISREG(state.st_mode):
                    yield _Entry(folder, (kind, first, name), state.st_size, state.st_mtime)


def _subs(folder: Directory) -> Iterator[tuple[str, Directory]]:
    for name, state in folder:
        if stat.S_ISDIR(state.st_mode):
            try:
                sub = folder.sub(name)
            except OSError:
                continue
            with sub:
                yield name, sub


def _trim(folder: Directory, limit: int) -> None:
    """Delete temporary files of killed writers and, above the limit, the least recently used."""
    entries = sorted(_entries(folder), key=lambda e: e.used, reverse=True)
    full = sum(e.size for e in entries) > limit
    target_size = int(limit * _TRIM_TO) if full else limit
    now, size = time.time(), 0
    for entry in entries:
        abandoned = is_abandoned(entry.path[2]) and now - entry.used > _FRESH
        if abandoned or size + entry.size > target_size:
            entry.remove()
        else:
            size += entry.size
