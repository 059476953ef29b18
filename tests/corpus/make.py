"""Makes the PTX of the corpus anew: python tests/corpus/make.py [NAME …], with nvcc on the PATH.

A source's lines ``// nvcc NAME: FLAGS`` say what to make of it: NAME.ptx.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
RECIPE = re.compile(r"^// nvcc (\w+): (.+)$", re.MULTILINE)
SECTION = re.compile(r"^\s*\.section\s.*?^\s*}", re.MULTILINE | re.DOTALL)


def recipes() -> dict[str, tuple[Path, list[str]]]:
    """PTX name → (source, flags)."""
    return {
        name: (source, flags.split())
        for source in sorted(HERE.glob("*.cu"))
        for name, flags in RECIPE.findall(source.read_text())
    }


def make(name: str, source: Path, flags: list[str]) -> None:
    """Compile where the source lies, so that no path gets into the PTX."""
    to = HERE / f"{name}.ptx"
    subprocess.run(["nvcc", "-ptx", *flags, source.name, "-o", to.name], cwd=HERE, check=True)
    text = to.read_text()
    if ", debug" in text:  # what a debugger needs tells of folders
        text = SECTION.sub("", text).replace(", debug", "", 1)
    lines = [re.sub(r'"/.*/', '"', line).rstrip() for line in text.splitlines()]
    to.write_text("\n".join(filter(None, lines)) + "\n")


if __name__ == "__main__":
    for name, (source, flags) in recipes().items():
        if len(sys.argv) == 1 or name in sys.argv[1:]:
            make(name, source, flags)
