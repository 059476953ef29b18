"""The autotuner's database of results: the user's own, and the results shipped with the package.

Reading happens once, when the first problem is looked up; from then on it is a dictionary. All
processes share the database (SQLite keeps writers apart, and a crash leaves what was before).
Whatever is wrong with it (not a database, of a newer tilewright, on a full disk) means going on
without, after a warning; a damaged file gets another name and is never overwritten.
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

_MARK = 0x74696C65  # says that a database is ours: "tile"
_SCHEMA = 1
_WAIT = 30.0  # seconds for another process to end its writing
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
    """Results of tuning can't be read or kept; the heuristic's choice is used."""


class _Foreign(Exception):
    """A database that is another program's, or a newer tilewright's."""


ABSENT = "absent"


class DatabaseSummary(NamedTuple):
    """How many results are the user's own and how many shipped; ``lacks`` and ``broken``: why there
    are none, ``ABSENT`` where there is no database.
    """

    own: int
    lacks: str
    shipped: int
    broken: str


def tuning_database() -> TuningDatabase:
    """The results that calls look up: those at ``tuning_paths.database_path``, and the shipped
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
    """Results in the database ``path``, and behind them those of ``shipped``, which is only read.
    Either may be absent, and None. ``state`` is ``tuning_paths.results_state()`` when they were
    read; None before that, and once results were added in this process.
    """

    def __init__(self, path: str | os.PathLike[str] | None, shipped: Path | None = SHIPPED) -> None:
        self.path = None if path is None else Path(path)
        self._shipped = shipped
        self._lock = threading.RLock()
        self._known: dict[TuningKey, tuple[TuningResult, ...]] | None = None
        self.state: str | None = None

    def find(self, problem: gemm.Problem, device: target.DeviceSpec) -> TuningResult | None:
        """The newest result for just this problem on such a device that still holds."""
        known = self._all()
        if not known:
            return None
        found = known.get(TuningKey.of(problem, device), ())
        return next((r for r in found if r.holds(problem, device)), None)

    def __iter__(self) -> Iterator[TuningResult]:
        """All of them, those that no longer hold too."""
        return iter([r for found in self._all().values() for r in found])

    def put(self, *results: TuningResult) -> bool:
        """Keep results; of those for one kernel and problem the newest stays. Whether they are in
        the database: a warning says why not.
        """
        kept = self._write(results)
        with self._lock:
            known = self._all()
            self.state = None
            for r in results:
                others = [x for x in known.get(r.key, ()) if x.kernel != r.kernel]
                known[r.key] = (r, *others)
        return kept

    # --- reading

    def _all(self) -> dict[TuningKey, tuple[TuningResult, ...]]:
        if self._known is None:
            with self._lock:
                if self._known is None:
                    self.state = tuning_paths.results_state()
                    self._known = _by_key([*self._own(), *self._given()])
        return self._known

    def survey(self) -> DatabaseSummary:
        """What there is now, without a warning."""
        (own, lacks), (shipped, broken) = self._in_database(), self._in_package()
        return DatabaseSummary(len(own), lacks, len(shipped), broken)

    def _own(self) -> list[TuningResult]:
        found, lacks = self._in_database()
        if lacks not in ("", ABSENT):
            _warn(f"the results of tuning in {self.path} can't be read: {lacks}")
        return found

    def _given(self) -> tuple[TuningResult, ...]:
        found, lacks = self._in_package()
        if lacks:
            _warn(f"the results that were shipped can't be read: {lacks}")
        return found

    def _in_database(self) -> tuple[list[TuningResult], str]:
        """The user's results, or why there are none."""
        try:
            if self.path is None or not (self.path.exists() or self.path.is_symlink()):
                return [], ABSENT
            with _connection(self.path, "rw") as database:
                return (_read(database), "") if _is_ours(database) else ([], "")
        except (OSError, ValueError, sqlite3.Error, _Foreign, ResultError) as error:
            return [], str(error)

    def _in_package(self) -> tuple[tuple[TuningResult, ...], str]:
        """The shipped results, or why there are none."""
        if self._shipped is None or not os.path.exists(self._shipped):
            return (), ""
        try:
            return from_json(self._shipped.read_text(encoding="utf-8"), str(self._shipped)), ""
        except (OSError, ResultError) as error:
            return (), str(error)

    # --- writing

    def _write(self, results: Iterable[TuningResult]) -> bool:
        if self.path is None:
            _warn("no place to keep results of tuning: TILEWRIGHT_TUNED names a file")
            return False
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if _is_damaged(self.path):
                _set_aside(self.path)
            with _connection(self.path, "rwc") as database:
                database.execute("BEGIN IMMEDIATE")
                if not _is_ours(database):
                    _make(database)
                database.executemany(_PUT, map(astuple, results))
                database.execute("COMMIT")
        except (OSError, sqlite3.Error, _Foreign) as error:
            _warn(f"results of tuning can't be kept in {self.path}: {error}")
            return False
        return True


def _warn(text: str) -> None:
    warn(text, TuningWarning)


def _by_key(results: Iterable[TuningResult]) -> dict[TuningKey, tuple[TuningResult, ...]]:
    made: dict[TuningKey, tuple[TuningResult, ...]] = {}
    for r in results:
        others = made.get(r.key, ())
        if all(x.kernel != r.kernel for x in others):
            made[r.key] = (*others, r)
    return made


# --- the database -------------------------------------------------------------------------------


@contextmanager
def _connection(path: Path, mode: str) -> Iterator[sqlite3.Connection]:
    """What is not committed within is undone."""
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    opened = sqlite3.connect(uri, timeout=_WAIT, isolation_level=None, uri=True)
    with closing(opened) as database:
        yield database


def _is_ours(database: sqlite3.Connection) -> bool:
    """Whether there are results; there is nothing at all otherwise. Raises _Foreign."""
    (mark,) = database.execute("PRAGMA application_id").fetchone()
    (schema,) = database.execute("PRAGMA user_version").fetchone()
    (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if (mark, schema, tables) == (0, 0, 0):
        return False
    if mark != _MARK:
        raise _Foreign("it is a database of another program")
    if schema != _SCHEMA:
        raise _Foreign(f"another tilewright wrote it, in form {schema}; this one knows {_SCHEMA}")
    return True


def _make(database: sqlite3.Connection) -> None:
    database.execute(f"PRAGMA application_id = {_MARK}")
    database.execute(f"PRAGMA user_version = {_SCHEMA}")
    database.execute(_CREATE)


def _read(database: sqlite3.Connection) -> list[TuningResult]:
    """The newest first."""
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


def _set_aside(path: Path) -> None:
    """Give a damaged file, and its journal, another name; of several processes one does."""
    with _connection(path.with_name(f"{path.name}.lock"), "rwc") as lock:
        lock.execute("BEGIN EXCLUSIVE")
        if not _is_damaged(path):
            return
        end = f".damaged-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        for name in (path.name, f"{path.name}-journal"):
            if (old := path.with_name(name)).exists():
                os.replace(old, path.with_name(name + end))
        _warn(f"{path} was damaged; it is kept as {path.name}{end}")
