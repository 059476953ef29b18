"""The paths of the tuning results, and a text that changes when the results do."""

from __future__ import annotations

import os
from pathlib import Path

from ...compile_cache import OFF, home

SHIPPED = Path(__file__).parent / "tuned.json"


def database_path() -> Path | None:
    """The user's database: ``$TILEWRIGHT_TUNED``, else ``$XDG_DATA_HOME/tilewright/tuned.sqlite``
    or ``~/.local/share/tilewright/tuned.sqlite``; None without a home folder.
    """
    if override := os.environ.get("TILEWRIGHT_TUNED", ""):
        return Path(override)
    folder = home("XDG_DATA_HOME", ".local/share")
    return folder and folder / "tuned.sqlite"


def tuning_disabled() -> bool:
    """Whether $TILEWRIGHT_TUNED disables all results, the shipped ones too."""
    return os.environ.get("TILEWRIGHT_TUNED", "").lower() in OFF


def results_state() -> str:
    """A text that changes with the results that calls look up: file identities, for cache keys."""
    return "off" if tuning_disabled() else " ".join(map(_state, (database_path(), SHIPPED)))


def _state(file: Path | None) -> str:
    try:
        s = os.stat(file) if file is not None else None
    except OSError:
        s = None
    return f"{file} {(s.st_ino, s.st_size, s.st_mtime_ns) if s is not None else None}"
