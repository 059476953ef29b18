"""Makes the PTX of the corpus anew: python tests/corpus/make.py COMPILER [NAME …].

A source's lines ``// nvcc NAME: FLAGS`` say what nvcc, on the PATH, makes of it: NAME.ptx; lines
``// nvrtc NAME: FLAGS`` what NVRTC does: nvrtc/NAME.ptx; ``// clang NAME: FLAGS`` what LLVM's does:
clang/NAME.ptx; the decorators ``made`` over a Triton kernel what Triton does: triton/NAME.ptx.
"""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
RECIPE = r"^// {} (\w+): (.+)$"
SECTION = re.compile(r"^\s*\.section\s.*?^\s*}", re.MULTILINE | re.DOTALL)


def recipes(compiler: str) -> dict[str, tuple[Path, list[str]]]:
    """PTX name → (source, flags)."""
    pattern = re.compile(RECIPE.format(compiler), re.MULTILINE)
    return {
        name: (source, flags.split())
        for source in sorted(HERE.glob("*.c*"))
        for name, flags in pattern.findall(source.read_text())
    }


def make(name: str, source: Path, flags: list[str]) -> None:
    """Compile where the source lies, so that no path gets into the PTX."""
    to = HERE / f"{name}.ptx"
    subprocess.run(["nvcc", "-ptx", *flags, source.name, "-o", to.name], cwd=HERE, check=True)
    text = to.read_text()
    to.write_text(kept(text, debug=", debug" in text))


def kept(text: str, debug: bool) -> str:
    """PTX less empty lines and folders' names; with ``debug``, less what only a debugger reads."""
    if debug:
        text = SECTION.sub("", text).replace(", debug", "", 1)
    lines = [re.sub(r'"/.*/', '"', line).rstrip() for line in text.splitlines()]
    return "\n".join(filter(None, lines)) + "\n"


def make_nvrtc(name: str, source: Path, flags: list[str]) -> None:
    from nvrtc_made import compiled

    text = kept(compiled(source, flags), debug=False)
    (HERE / "nvrtc" / f"{name}.ptx").write_text(text)


def make_clang(name: str, source: Path, flags: list[str]) -> None:
    to = HERE / "clang" / f"{name}.ptx"
    subprocess.run(["clang", "-S", *flags, source.name, "-o", str(to)], cwd=HERE, check=True)
    to.write_text(kept(to.read_text(), debug=False))


def make_triton(names: list[str]) -> None:
    """Run the sources where they lie, so that no path gets into the PTX."""
    from triton_made import MADE, compiled

    os.chdir(HERE)
    for source in sorted(HERE.glob("triton_*.py")):
        if source.stem != "triton_made":
            runpy.run_path(source.name)
    for recipe in MADE:
        if not names or recipe.name in names:
            (HERE / "triton" / f"{recipe.name}.ptx").write_text(kept(compiled(recipe), debug=True))


if __name__ == "__main__":
    compiler, *names = sys.argv[1:] or ["nvcc"]
    if compiler == "triton":
        make_triton(names)
    else:
        how = {"nvcc": make, "nvrtc": make_nvrtc, "clang": make_clang}[compiler]
        for name, (source, flags) in recipes(compiler).items():
            if not names or name in names:
                how(name, source, flags)
