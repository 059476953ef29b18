"""Hashes of source code, for cache keys: a cached value's key includes the code that computed it.

``source_key("vm.machine")`` hashes the text of a module and of all modules that it imports,
directly or indirectly, so no list of files has to be maintained. Following the imports takes some
100 ms. The result is cached under a *stamp* of the package, which takes 2 ms: the name, inode, size
and times of each file.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from .compile_cache import store

PACKAGE = Path(__file__).parent
_FROM = re.compile(r"^[ \t]*from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]+(\([^)]*\)|.*)", re.MULTILINE)
_NAME = re.compile(r"(\w+)(?:[ \t]+as[ \t]+\w+)?[ \t]*(?:,|$|\n|\)|#)")
_IMPORT = re.compile(r"^[ \t]*import[ \t]+([\w., \t]+)", re.MULTILINE)
_CALL = re.compile(r"\b(?:import_module|__import__|deferred)\(\s*[\"'](\.*)([\w.]*)[\"']")


@cache
def source_key(*roots: str) -> str:
    """A hash of the import closure of these modules (``"vm.machine"``), as hexadecimal digits."""
    now = stamp(PACKAGE)
    if not store().enabled:  # no value will be stored or looked up by this key
        return now
    name = f"{sorted(roots)}\n{now}"
    return store().get_or_make("source", name, lambda: digest(PACKAGE, *roots).encode()).decode()


def digest(package: Path, *roots: str) -> str:
    """A hash of the names and texts of all files in ``closure``."""
    files = closure(package, *roots)
    rows = [f"{p.relative_to(package)} {hashlib.sha256(p.read_bytes()).hexdigest()}" for p in files]
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()


def stamp(package: Path) -> str:
    """A hash that changes when a file of the package changes. It includes the time of the inode's
    last change, so ``os.utime`` cannot hide a change."""
    rows = [str(package)]
    for folder, folders, names in os.walk(package):
        folders.sort()
        for name in sorted(names):
            if name.endswith(".py"):
                s = os.stat(os.path.join(folder, name))
                state = s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns
                rows.append(f"{folder} {name} {state}")
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()


def closure(package: Path, *roots: str) -> list[Path]:
    """The files of the modules and of all modules of the package that they import, sorted.

    Imports inside functions and under ``TYPE_CHECKING`` count too. The package's own ``__init__``
    is never followed: it names every module.
    """
    top, now = package / "__init__.py", stamp(package)
    waiting = [file for root in roots for file in _files(package, tuple(root.split(".")), now)]
    found = {top}
    while waiting:
        file = waiting.pop()
        if file not in found:
            found.add(file)
            waiting += _imported(package, file, now)
    return sorted(found)


@cache
def _imported(package: Path, file: Path, now: str) -> tuple[Path, ...]:
    """The files of the package that a file imports; ``now`` is the package's stamp."""
    folder = file.relative_to(package).parts[:-1]
    names = dict.fromkeys(named(file.read_text(encoding="utf-8")))
    paths = (_absolute(package.name, folder, *name) for name in names)
    return tuple({f for path in paths if path is not None for f in _files(package, path, now)})


def named(source: str) -> Iterator[tuple[int, str]]:
    """The number of leading dots and the dotted name of everything that a source may import.

    Regular expressions are ten times as fast as parsing. Text that only looks like an import is
    harmless: it adds names.
    """
    for dots, module, names in _FROM.findall(source):
        yield len(dots), module
        for name in _NAME.findall(names):
            yield len(dots), f"{module}.{name}".strip(".")
    for names in _IMPORT.findall(source):
        yield from ((0, name.split()[0]) for name in names.split(",") if name.strip())
    for dots, name in _CALL.findall(source):
        yield len(dots), name


def _absolute(
    package: str, folder: tuple[str, ...], level: int, name: str
) -> tuple[str, ...] | None:
    """A module's path below the package; None for a module of another package."""
    parts = tuple(name.split(".")) if name else ()
    if level:
        return (*folder[: len(folder) - level + 1], *parts)
    return parts[1:] if parts[:1] == (package,) else None


@cache
def _files(package: Path, parts: tuple[str, ...], now: str) -> tuple[Path, ...]:
    """The files that importing a dotted name executes; the last part may be an attribute."""
    files, path = [], package
    for part in parts:
        path = path / part
        if (init := path / "__init__.py").is_file():
            files.append(init)
        elif (module := path.with_suffix(".py")).is_file():
            return (*files, module)
    return tuple(files)
