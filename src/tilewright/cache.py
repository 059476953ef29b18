"""The compile cache on disk: bytes by kind and key, which only ever make things faster.

One file holds one entry, with a checksum over key and value. A file appears whole, by an atomic
rename, so processes need no lock; one that is damaged in any way is deleted and made again. A disk
that is full or may not be written means working without a cache, after one warning, not an error.

Entries include machine code that will run, so the folder must be ours alone to write.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from weakref import WeakValueDictionary

from .errors import warn

LIMIT = 1 << 30  # bytes
OFF = ("off", "0", "no", "false")  # what an environment variable says
_MAGIC = b"tilewright cache 1\n"
_DIGEST = hashlib.sha256
_DIGEST_BYTES = 32
_TRIM_TO = 0.8  # of the limit: trimming reads the whole folder, so let it be rare
_FRESH = 3600.0  # seconds for which a use is not written down again, nor a strange file deleted
_NEW = ".new-"
_KIND = re.compile(r"[a-z0-9_-]+")


class CacheWarning(RuntimeWarning):
    """The cache can't be used; everything works, but compiles each time."""


@dataclass(frozen=True, slots=True)
class Info:
    """What the cache holds: for ``tilewright doctor``."""

    path: Path | None
    entries: int
    bytes: int
    limit: int


def default_path() -> Path | None:
    """Where the cache lives: see ``Cache``. None where it is off or there is no home folder."""
    if os.environ.get("TILEWRIGHT_CACHE", "").lower() in OFF:
        return None
    if given := os.environ.get("TILEWRIGHT_CACHE_DIR"):
        return Path(given)
    return home("XDG_CACHE_HOME", ".cache")


def home(variable: str, usual: str) -> Path | None:
    """Our folder in the one that a variable of the XDG specification names, or in the user's usual
    one; None where there is no home folder.
    """
    xdg = os.environ.get(variable, "")
    if os.path.isabs(xdg):  # the specification ignores a relative one
        return Path(xdg, "tilewright")
    try:
        return Path.home() / usual / "tilewright"
    except RuntimeError:
        return None


class Cache:
    """Bytes by (kind, key), kept below ``limit`` bytes by dropping what was longest unused.

    ``path`` is, where not given, ``$TILEWRIGHT_CACHE_DIR``, ``$XDG_CACHE_HOME/tilewright`` or
    ``~/.cache/tilewright``; ``TILEWRIGHT_CACHE=off`` keeps nothing. All threads may share one.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, limit: int = LIMIT) -> None:
        root = default_path() if path is None else Path(path)
        self.limit = limit
        self._root = root / "v1" if root is not None else None
        self._may_write = True
        self._checked = False
        self._size: int | None = None  # bytes on disk, as far as this process knows
        self._lock = threading.Lock()
        self._making: WeakValueDictionary[str, _Turn] = WeakValueDictionary()

    # --- use

    def get(self, kind: str, key: bytes | str) -> bytes | None:
        """The value, or None where there is none that is whole."""
        folder = self._folder()
        if folder is None:
            return None
        path = _file(folder, kind, key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        value = _unsealed(data, kind, key)
        if value is None:
            _remove(path)
        else:
            _touch(path)
        return value

    def put(self, kind: str, key: bytes | str, value: bytes) -> None:
        """Keep a value, replacing any older one."""
        folder = self._folder()
        if folder is None or not self._may_write:
            return
        data = _seal(value, kind, key)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # somebody may have deleted it
            _write(_file(folder, kind, key), data)
        except OSError as error:
            self._give_up(f"the cache {folder.parent} can't be written: {error}")
            return
        self._grown(folder, len(data))

    def get_or_make(self, kind: str, key: bytes | str, make: Callable[[], bytes]) -> bytes:
        """The value, made and kept where there is none; of many threads that ask, one makes it."""
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
        """Whether anything can be found in it."""
        return self._folder() is not None

    def clear(self) -> None:
        """Delete every entry."""
        folder = self._folder()
        for entry in _entries(folder) if folder is not None else ():
            _remove(entry.path)
        self._size = None

    def info(self) -> Info:
        """Path (None: there is no cache), number of entries, bytes and limit."""
        folder = self._folder()
        found = list(_entries(folder)) if folder is not None else []
        path = folder.parent if folder is not None else None
        return Info(path, len(found), sum(e.size for e in found), self.limit)

    # --- care

    def _folder(self) -> Path | None:
        """The entries' folder, made and found safe on first use; None where there is no cache."""
        if not self._checked:
            with self._lock:
                if not self._checked:
                    self._root = self._root and self._opened(self._root)
                    self._checked = True
        return self._root

    def _opened(self, folder: Path) -> Path | None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            state = folder.stat()
        except OSError as error:
            self._give_up(f"no cache: {folder} can't be made: {error}")
            return None
        if os.name == "posix" and (state.st_uid != os.geteuid() or state.st_mode & 0o022):
            self._give_up(f"no cache: others may write to {folder}, which can't be trusted then")
            return None
        return folder

    def _give_up(self, why: str) -> None:
        """Stop writing, and say so once."""
        if self._may_write:
            self._may_write = False
            hint = "compiling each time; TILEWRIGHT_CACHE_DIR chooses another place"
            warn(f"{why} ({hint})", CacheWarning)

    def _grown(self, folder: Path, size: int) -> None:
        """Count what was written; read the folder at the first write and where it may be full."""
        with self._lock:
            self._size = None if self._size is None else self._size + size
            if self._size is None or self._size > self.limit:
                self._size = _trim(folder, self.limit)


@cache
def store() -> Cache:
    """The compile cache of this process."""
    return Cache()


class _Turn:
    """Whoever holds ``lock`` makes the value; the others find it made."""

    __slots__ = ("__weakref__", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()


# --- one entry ----------------------------------------------------------------------------------


def _name(kind: str, key: bytes | str) -> str:
    assert _KIND.fullmatch(kind), f"bad kind {kind!r}"
    data = key.encode() if isinstance(key, str) else key
    return _DIGEST(data).hexdigest()


def _file(folder: Path, kind: str, key: bytes | str) -> Path:
    name = _name(kind, key)
    return folder / kind / name[:2] / name[2:]


def _sum(value: bytes, kind: str, key: bytes | str) -> bytes:
    return _DIGEST(f"{kind}/{_name(kind, key)}/".encode() + value).digest()


def _seal(value: bytes, kind: str, key: bytes | str) -> bytes:
    return _MAGIC + _sum(value, kind, key) + value


def _unsealed(data: bytes, kind: str, key: bytes | str) -> bytes | None:
    """The value in a file's bytes, or None where they are not what was written for this key."""
    start = len(_MAGIC) + _DIGEST_BYTES
    value = data[start:]
    if data[:start] != _MAGIC + _sum(value, kind, key):
        return None
    return value


def _write(path: Path, data: bytes) -> None:
    """Make the file appear whole, or not at all."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=_NEW)
    try:
        with open(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        _remove(Path(temporary))
        raise


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


def _touch(path: Path) -> None:
    """Write down that the entry was used: its time of change is what trimming goes by."""
    with suppress(OSError):
        if time.time() - path.stat().st_mtime > _FRESH:
            os.utime(path)


# --- the folder ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Entry:
    path: Path
    size: int
    used: float


def _entries(folder: Path) -> Iterator[_Entry]:
    """All files below the folder, half-written ones included; what vanishes is passed over."""
    for where, _, names in os.walk(folder):
        for name in names:
            path = Path(where, name)
            with suppress(OSError):
                state = path.lstat()
                if stat.S_ISREG(state.st_mode):
                    yield _Entry(path, state.st_size, state.st_mtime)


def _trim(folder: Path, limit: int) -> int:
    """Delete what killed writers left and, above the limit, what was longest unused; bytes kept."""
    entries = sorted(_entries(folder), key=lambda e: e.used, reverse=True)
    full = sum(e.size for e in entries) > limit
    room = int(limit * _TRIM_TO) if full else limit
    now, kept = time.time(), 0
    for entry in entries:
        left_over = entry.path.name.startswith(_NEW) and now - entry.used > _FRESH
        if left_over or kept + entry.size > room:
            _remove(entry.path)
        else:
            kept += entry.size
    return kept
