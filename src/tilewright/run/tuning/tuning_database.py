"""The autotuner's database of results: the user's own, and the results shipped with the package.

It is read once, at the first lookup, into a dictionary. All processes share the database: SQLite
serializes writers, and a crash leaves the previous contents. If it can't be used (not a database,
of a newer tilewright, full disk), a warning says so and calls go on without it. A damaged file is
renamed, never overwritten.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import astuple, fields
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ... import gemm, target
from ...errors import ResultError, warn
from . import tuning_paths
from .tuning_paths import SHIPPED
from .tuning_result import TuningKey, TuningResult, from_json

_APPLICATION_ID = 0x74696C65  # of a database of tuning results: "tile"
_SCHEMA = 1
_TIMEOUT = 30.0  # seconds to wait for another process that writes
_NAMES = [f.name for f in fields(TuningResult)]
_KEY = "problem, device, arch, sms, kernel"
_COLUMNS = ", ".join(
    f"{f.name} { ({'int': 'INTEGER', 'float': 'REAL'}.get(str(f.type), 'TEXT')) } NOT NULL"
    for f in fields(TuningResult)
)
_CREATE = f"CREATE TABLE IF NOT EXISTS tuned ({_COLUMNS}, PRIMARY KEY ({_KEY})) WITHOUT ROWID"
_PUT = (
    f"INSERT INTO tuned ({', '.join(_NAMES)}) VALUES ({', '.join('?' * len(_NAMES))}) "
    f"ON CONFLICT ({_KEY}) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _NAMES[5:])
    + " WHERE excluded.date >= tuned.date"
)


class TuningWarning(RuntimeWarning):
    """Tuning results can't be read or stored; the heuristic's choice is used."""


class _ForeignDatabase(Exception):
    """A database of another program, or of a newer tilewright."""


ABSENT = "absent"


class DatabaseSummary(NamedTuple):
    """The numbers of the user's own results and of shipped results, each with the error that
    prevented reading them; ``own_error`` is ``ABSENT`` if there is no database.
    """

    own: int
    own_error: str
    shipped: int
    shipped_error: str


def tuning_database() -> TuningDatabase:
    """The results that calls look up: those of ``tuning_paths.database_path``, and the shipped
    ones.
    """
    return (
        _opened(None, None)
        if tuning_paths.tuning_disabled()
        else _opened(tuning_paths.database_path(), SHIPPED)
    )


@cache
def _opened(path: Path | None, shipped: Path | None) -> TuningDatabase:
    return TuningDatabase(path, shipped)


class TuningDatabase:
    """The results of the database ``path``, then those of ``shipped``, which is only read.

    Either path may be None or absent. ``state`` is ``tuning_paths.results_state()`` when they were
    read; None before that, and after results were added in this process.
    """

    def __init__(self, path: str | os.PathLike[str] | None, shipped: Path | None = SHIPPED) -> None:
        self.path = None if path is None else Path(path)
        self._shipped = shipped
        self._lock = threading.RLock()
        self._known: dict[TuningKey, tuple[TuningResult, ...]] | None = None
        self.state: str | None = None

    def find(self, problem: gemm.Problem, device: target.DeviceSpec) -> TuningResult | None:
        """The newest valid result for this problem on this device model."""
        known = self._all()
        if not known:
            return None
        results = known.get(TuningKey.of(problem, device), ())
        return next((r for r in results if r.holds(problem, device)), None)

    def __iter__(self) -> Iterator[TuningResult]:
        """All results, including those that are out of date."""
        return iter([r for results in self._all().values() for r in results])

    def put(self, *results: TuningResult) -> bool:
        """Store results; the newest one for a kernel and problem replaces older ones.

        Returns whether they are in the database; a warning says why not.
        """
        stored = self._write(results)
        with self._lock:
            known = self._all()
            self.state = None
            for r in results:
                others = [x for x in known.get(r.key, ()) if x.kernel != r.kernel]
                known[r.key] = (r, *others)
        return stored

    # --- reading

    def _all(self) -> dict[TuningKey, tuple[TuningResult, ...]]:
        if self._known is None:
            with self._lock:
                if self._known is None:
                    self.state = tuning_paths.results_state()
                    self._known = _by_key([*self._own(), *self._shipped_results()])
        return self._known

    def survey(self) -> DatabaseSummary:
        """What the files contain now, without warnings."""
        own, own_error = self._read_database()
        shipped, shipped_error = self._read_shipped()
        return DatabaseSummary(len(own), own_error, len(shipped), shipped_error)

    def _own(self) -> list[TuningResult]:
        results, error = self._read_database()
        if error not in ("", ABSENT):
            _warn(f"the tuning results in {self.path} can't be read: {error}")
        return results

    def _shipped_results(self) -> tuple[TuningResult, ...]:
        results, error = self._read_shipped()
        if error:
            _warn(f"the shipped tuning results can't be read: {error}")
        return results

    def _read_database(self) -> tuple[list[TuningResult], str]:
        """The user's results, and the error if they can't be read."""
        try:
            if self.path is None or not (self.path.exists() or self.path.is_symlink()):
                return [], ABSENT
            with _connection(self.path, "rw") as database:
                return (_read(database), "") if _is_ours(database) else ([], "")
        except (OSError, ValueError, sqlite3.Error, _ForeignDatabase, ResultError) as error:
            return [], str(error)

    def _read_shipped(self) -> tuple[tuple[TuningResult, ...], str]:
        """The shipped results, and the error if they can't be read."""
        if self._shipped is None or not os.path.exists(self._shipped):
            return (), ""
        try:
            return from_json(self._shipped.read_text(encoding="utf-8"), str(self._shipped)), ""
        except (OSError, ResultError) as error:
            return (), str(error)

    # --- writing

    def _write(self, results: Iterable[TuningResult]) -> bool:
        if self.path is None:
            _warn("tuning results can't be stored without a path: set TILEWRIGHT_TUNED to a file")
            return False
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if _is_damaged(self.path):
                _rename_damaged(self.path)
            with _connection(self.path, "rwc") as database:
                database.execute("BEGIN IMMEDIATE")
                if not _is_ours(database):
                    _make(database)
                database.executemany(_PUT, map(astuple, results))
                database.execute("COMMIT")
        except (OSError, sqlite3.Error, _ForeignDatabase) as error:
            _warn(f"tuning results can't be stored in {self.path}: {error}")
            return False
        return True


def _warn(text: str) -> None:
    warn(text, TuningWarning)


def _by_key(results: Iterable[TuningResult]) -> dict[TuningKey, tuple[TuningResult, ...]]:
    by_key: dict[TuningKey, tuple[TuningResult, ...]] = {}
    for r in results:
        others = by_key.get(r.key, ())
        if all(x.kernel != r.kernel for x in others):
            by_key[r.key] = (*others, r)
    return by_key


# --- the database -------------------------------------------------------------------------------


@contextmanager
def _connection(path: Path, mode: str) -> Iterator[sqlite3.Connection]:
    """A connection; on exit, uncommitted changes are rolled back."""
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    connection = sqlite3.connect(uri, timeout=_TIMEOUT, isolation_level=None, uri=True)
    with closing(connection) as database:
        yield database


def _is_ours(database: sqlite3.Connection) -> bool:
    """Whether it is a database of tuning results; False if it is empty. Raises _ForeignDatabase."""
    (application,) = database.execute("PRAGMA application_id").fetchone()
    (schema,) = database.execute("PRAGMA user_version").fetchone()
    (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if (application, schema, tables) == (0, 0, 0):
        return False
    if application != _APPLICATION_ID:
        raise _ForeignDatabase("it is a database of another program")
    if schema != _SCHEMA:
        raise _ForeignDatabase(f"its schema version must be {_SCHEMA}, got {schema}")
    return True


def _make(database: sqlite3.Connection) -> None:
    database.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
    database.execute(f"PRAGMA user_version = {_SCHEMA}")
    database.execute(_CREATE)


def _read(database: sqlite3.Connection) -> list[TuningResult]:
    """All results, the newest first."""
    rows = database.execute(f"SELECT {', '.join(_NAMES)} FROM tuned ORDER BY date DESC")
    return [TuningResult.of(dict(zip(_NAMES, row, strict=True))) for row in rows]


_DAMAGED = {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}


def _is_damaged(path: Path) -> bool:
    if not path.exists():
        return False
    try:
        with _connection(path, "rw") as database:
            (report,) = database.execute("PRAGMA quick_check(1)").fetchone()
            return bool(report != "ok")
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF in _DAMAGED:
            return True
        raise


def _rename_damaged(path: Path) -> None:
    """Rename a damaged file and its journal; only one of several processes does it."""
    with _connection(path.with_name(f"{path.name}.lock"), "rwc") as lock:
        lock.execute("BEGIN EXCLUSIVE")
        if not _is_damaged(path):
            return
        suffix = f".damaged-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        for name in (path.name, f"{path.name}-journal"):
            if (old := path.with_name(name)).exists():
                os.replace(old, path.with_name(name + suffix))
        _warn(f"{path} was damaged and is renamed to {path.name}{suffix}")
