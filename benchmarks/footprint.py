"""Installed size, import time and lines of user code, compared with other libraries.

    python benchmarks/footprint.py           # installs each library in a folder of its own (1.8 GB)
    python benchmarks/footprint.py --run     # on a GPU: runs the programs whose libraries are here

Size: all files of the library and of what it requires, without PyTorch and what PyTorch requires.
Import: median of nine processes, less a Python that imports nothing; where a library needs PyTorch,
its wheel for CPUs is installed too and its import counts. Lines: gelu(α · AB + bias) with matrices
in e4m3, without imports, blank lines and comments (`footprint_programs`); for CuTe DSL, CUTLASS'
example of just that (`dense_gemm_fp8_gelu_persistent.py`, August 2026, not run here).
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).parent / "footprint_programs"
REPOSITORY = Path(__file__).parent.parent
TORCH_FOR_CPUS = ("torch==2.13.0+cpu", "--extra-index-url", "https://download.pytorch.org/whl/cpu")
CUTE_DSL_LINES = 1524


@dataclass(frozen=True)
class Library:
    """A library by its name in the table, what pip installs, and what a program imports."""

    name: str
    requirement: str
    module: str
    needs_torch: bool = False


LIBRARIES = (
    Library("tilewright", str(REPOSITORY), "tilewright"),
    Library("tilewright[cuda]", f"{REPOSITORY}[cuda]", "tilewright"),
    Library("Triton", "triton", "triton"),
    Library("CuTe DSL", "nvidia-cutlass-dsl", "cutlass.cute"),
    Library("quack", "quack-kernels", "quack.gemm_interface", needs_torch=True),
    Library("nvmath", "nvmath-python[cu12]", "nvmath"),
    Library("torchao", "torchao", "torchao", needs_torch=True),
)


def pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "-qqq", *arguments], check=True)


def closure(requirement: str, folder: Path) -> set[str]:
    """What pip would install for ``requirement``, as ``name==version`` or the folder of ours."""
    report = folder / "report.json"
    options = ("--dry-run", "--ignore-installed", "--report", str(report))
    pip("install", *options, requirement)
    found = json.loads(report.read_text())["install"]
    return {_pinned(package) for package in found}


def _pinned(package: dict[str, dict[str, str]]) -> str:
    url = package["download_info"]["url"]
    if url.startswith("file:") and not url.endswith(".whl"):
        return url.removeprefix("file://")
    return f"{package['metadata']['name']}=={package['metadata']['version']}"


def installed_megabytes(folder: Path) -> float:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()) / 1e6


def import_seconds(module: str, folders: list[Path], repeats: int = 9) -> float:
    """Seconds that ``import module`` takes in a new process whose files were read before."""
    paths = ";".join(f"site.addsitedir({str(f)!r})" for f in folders)

    def median(statement: str) -> float:
        command = [sys.executable, "-I", "-c", f"import site;{paths};{statement}"]
        return statistics.median(_seconds(command) for _ in range(repeats + 1))

    return median(f"import {module}") - median("pass")


def _seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def lines(program: Path) -> int:
    """Lines of ``program`` without imports, blank lines and comments."""
    text = program.read_text()
    imports = {
        line
        for node in ast.parse(text).body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    return sum(
        bool(line.strip()) and not line.strip().startswith("#")
        for number, line in enumerate(text.splitlines(), 1)
        if number not in imports
    )


def table() -> None:
    print("| library | installed, MB | import, s | lines |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        of_torch = {p.partition("==")[0] for p in closure("torch", root)}
        torch = root / "torch"
        pip("install", "--target", str(torch), *TORCH_FOR_CPUS)
        pip(
            "install", "--target", str(torch), "cuda-bindings", "triton"
        )  # PyTorch for GPUs has them
        for i, library in enumerate(LIBRARIES):
            folder = root / str(i)
            wanted = closure(library.requirement, root)
            if library.needs_torch:
                wanted = {p for p in wanted if p.partition("==")[0] not in of_torch}
            pip("install", "--no-deps", "--target", str(folder), *wanted)
            folders = [folder, torch] if library.needs_torch else [folder]
            print(_row(library, folder, folders), flush=True)


def _row(library: Library, folder: Path, folders: list[Path]) -> str:
    try:
        seconds = f"{import_seconds(library.module, folders):.2f}"
    except subprocess.CalledProcessError as error:
        seconds = f"fails: {error.stderr.decode().strip().splitlines()[-1]}"
    program = PROGRAMS / f"with_{library.name.partition('[')[0].lower()}.py"
    count = lines(program) if program.exists() else CUTE_DSL_LINES
    seconds += " with PyTorch" * library.needs_torch
    return f"| {library.name} | {installed_megabytes(folder):.0f} | {seconds} | {count} |"


def run() -> None:
    """Runs each program whose library is installed, and prints its largest error against f64."""
    import torch

    sys.path.insert(0, str(PROGRAMS))
    x, w = (torch.randn(512, 512, device="cuda").to(torch.float8_e4m3fn) for _ in range(2))
    bias, alpha = torch.randn(512, device="cuda"), 0.0625
    exact = torch.nn.functional.gelu(alpha * (x.double() @ w.double().T) + bias.double())
    for path in sorted(PROGRAMS.glob("with_*.py")):
        try:
            d = importlib.import_module(path.stem).gelu_product(x, w.T, alpha, bias)
        except ImportError as error:
            print(f"{path.stem}: not installed ({error})")
            continue
        error = ((d.double() - exact).abs() / exact.abs().clamp(min=0.25)).max()
        print(f"{path.stem}: {d.dtype}, largest error {float(error):.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--run", action="store_true", help="run the programs on a GPU")
    run() if parser.parse_args().run else table()
