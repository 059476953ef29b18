"""Makes tests/data/cute_layouts.txt.gz again, with PYTHONPATH=tests/support:
python -m cute_reference.cute_make INCLUDE [CUDA_INCLUDE]

INCLUDE is the include directory of a checkout of CUTLASS, CUDA_INCLUDE that of a CUDA toolkit
(/usr/local/cuda/include). CuTe compiles for the host: g++ is all that is needed. Its algebra works
at compile time, so every case of ``cute_cases`` is a line of C++; what a static_assert refuses is
found by its line number and asked no more. A row of the table is the case and CuTe's answer, as
CuTe prints it. It takes half an hour on two cores.
"""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cute_reference.cute_cases import Case, cases
from cute_reference.cute_sample import Basis, Composed, Late, Pair, Tiler, Xor, late, read

TABLE = Path(__file__).parents[2] / "data" / "cute_layouts.txt.gz"
CHUNK = 100  # cases of a translation unit
PROLOGUE = """
#include <cute/layout.hpp>
#include <cute/swizzle_layout.hpp>
#include <cute/tensor.hpp>
#include <sys/wait.h>
#include <unistd.h>
using namespace cute;
#define CASE(text, ...) if (!fork()) { row(text, __VA_ARGS__); exit(0); } wait(0);
template <class... T> void row(char const* text, T const&... t) {
  printf("%s", text); ((printf("|"), print(t)), ...); printf("\\n");
}
"""

EXPRESSIONS = {
    "call": "{0}({1})",
    "with_shape": "{0}.with_shape({1})",
    "upcast": "upcast<{1:T}>({0})",
    "downcast": "downcast<{1:T}>({0})",
    "recast": "recast_layout<uint_bit_t<{1:T}>, uint_bit_t<{2:T}>>({0})",
    "group": "group<{1:T},{2:T}>({0})",
    "take": "take<{1:T},{2:T}>({0})",
    "select": "select<{1:T}>({0})",
    "slice_and_offset": "get<0>(slice_and_offset({1}, {0})); get<1>(slice_and_offset({1}, {0}))",
    "dice": "dice({1}, {0})",
}
"""How C++ writes an operation, where it is not a function of the same arguments."""


class Argument:
    """C++ for an argument: an expression, or template arguments where ``:T`` asks for them."""

    def __init__(self, written: str) -> None:
        self.written = written

    def __format__(self, spec: str) -> str:
        return re.sub(r"[_()]", "", self.written) if spec == "T" else expression(read(self.written))


def expression(x: Any) -> str:
    """C++ for a number, tuple, tiler, layout, swizzle or composed layout."""
    match x:
        case None:
            return "_"
        case Late():
            return str(int(x))
        case int():
            return f"Int<{x}>{{}}"
        case Basis(value, mode):
            return f"ScaledBasis<Int<{value}>,{','.join(map(str, mode))}>{{}}"
        case Pair():
            return f"make_layout({', '.join(map(expression, x))})"
        case Xor():
            return f"Swizzle<{','.join(map(str, x))}>{{}}"
        case Composed():
            return f"composition({', '.join(map(expression, x))})"
        case Tiler(modes):
            return expression(modes)
    return f"cute::make_tuple({', '.join(map(expression, x))})"


def line_of(case: Case) -> str:
    """The line of C++ that prints a case's row. Of what is known early the type says all, and no
    code need be made."""
    op, *args = case
    template = EXPRESSIONS.get(op, f"{op}({', '.join(f'{{{i}}}' for i in range(len(args)))})")
    if op in ("append", "prepend") and ":" not in args[1]:
        template = f"{op}<{{1:T}}>({{0}})"
    results = template.format(*map(Argument, args)).split("; ")
    if not late(tuple(map(read, args))):
        results = [f"remove_cvref_t<decltype({x})>{{}}" for x in results]
    return f'CASE("{"|".join(case)}", {", ".join(results)})'


class Compiler:
    """g++, with the prologue compiled once."""

    def __init__(self, includes: Iterable[str], folder: Path) -> None:
        self.command = ["g++", "-std=c++17", "-w", "-O0", *[f"-I{path}" for path in includes]]
        self.folder = folder
        header = folder / "prologue.hpp"
        header.write_text(PROLOGUE)
        subprocess.run([*self.command, "-x", "c++-header", str(header)], check=True)

    def answers(self, number: int, chunk: list[Case]) -> tuple[list[str], list[Case]]:
        """The rows of the cases that CuTe takes, and the cases that it refuses."""
        refused: list[Case] = []
        source, program = self.folder / f"cases{number}.cpp", self.folder / f"cases{number}"
        while True:
            lines = ['#include "prologue.hpp"', "int main() {", *map(line_of, chunk), "}"]
            source.write_text("\n".join(lines) + "\n")
            made = subprocess.run(
                [*self.command, str(source), "-o", str(program)], capture_output=True, text=True
            )
            if made.returncode == 0:
                break
            wrong = {int(n) - 3 for n in re.findall(rf"{source.name}:(\d+)", made.stderr)}
            if not wrong & set(range(len(chunk))):
                raise RuntimeError(made.stderr[-4000:])
            refused += [case for i, case in enumerate(chunk) if i in wrong]
            chunk = [case for i, case in enumerate(chunk) if i not in wrong]
        out = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
        return out.splitlines(), refused


def main() -> None:
    include, cuda = [*sys.argv[1:], "/usr/local/cuda/include"][:2]
    all_cases = cases()
    chunks = [all_cases[i : i + CHUNK] for i in range(0, len(all_cases), CHUNK)]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        compiler = Compiler([include, cuda, f"{cuda}/cccl"], Path(folder))
        results = list(pool.map(compiler.answers, range(len(chunks)), chunks))
    rows = [row for answered, _ in results for row in answered]
    TABLE.write_bytes(gzip.compress("\n".join(sorted(rows)).encode() + b"\n", 9, mtime=0))
    refused = [case for _, cases_refused in results for case in cases_refused]
    sys.stderr.write(f"{len(rows)} rows, {len(refused)} cases refused\n")
    sys.stderr.writelines("|".join(case) + "\n" for case in refused)


if __name__ == "__main__":
    main()
