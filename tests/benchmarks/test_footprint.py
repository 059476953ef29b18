"""``benchmarks/footprint.py``: the lines it counts, and our program of the table."""

from __future__ import annotations

from pathlib import Path

import footprint
import ml_dtypes
import numpy as np
from footprint_programs.with_tilewright import gelu_product

import tilewright


def test_lines_without_imports_comments_and_blank_lines(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import math\nfrom os import (\n    path,\n)\n\n# a\nx = 1\n\nprint(x)  # b\n"
    )
    assert footprint.lines(program) == 2


def test_every_library_but_cute_dsl_has_a_program() -> None:
    names = {library.name.partition("[")[0].lower() for library in footprint.LIBRARIES}
    programs = {path.stem.removeprefix("with_") for path in footprint.PROGRAMS.glob("with_*.py")}
    assert names - programs == {"cute dsl"}


def test_our_program_is_the_product_it_is_said_to_be() -> None:
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal((64, 64)).astype(ml_dtypes.float8_e4m3fn) for _ in range(2))
    bias = generator.standard_normal(64).astype(np.float32)
    d = gelu_product(a, b, 0.5, bias)
    exact = tilewright.gelu(0.5 * (a.astype(np.float32) @ b.astype(np.float32)) + bias)
    assert d.dtype == ml_dtypes.float8_e4m3fn
    np.testing.assert_allclose(d.astype(np.float32), exact, rtol=2**-4, atol=2**-9)
