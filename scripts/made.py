"""Generated files: written if they have changed."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]


def keep(files: dict[Path, str], pictures: Path, arguments: list[str]) -> int:
    """Write the files that have changed, and remove all other pictures of a folder. With
    ``--check`` only print their names, and return 1 if there are any.
    """
    old = [path for path in pictures.glob("*.svg") if path not in files]
    new = {
        path: text
        for path, text in files.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    }
    for path in [*new, *old]:
        print(path.relative_to(ROOT))
    if "--check" in arguments:
        return 1 if new or old else 0
    pictures.mkdir(exist_ok=True)
    for path, text in new.items():
        path.write_text(text, encoding="utf-8")
    for path in old:
        path.unlink()
    return 0
