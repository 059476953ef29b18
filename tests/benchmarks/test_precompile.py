"""Kernels are compiled in child processes; a row without kernels does not stop the others."""

from __future__ import annotations

from compare.precompile import compile_row, compile_rows
from compare.rows import Row

SMALL = Row("shapes", 64, 64, 64, "f32", "tt")


def test_rows_are_compiled_in_child_processes() -> None:
    work = [(SMALL, "simt:64x64x8:8x8:4"), (SMALL, "tma"), (Row("shapes", 1, 1, 1, "f6"), None)]
    kernels, wrong_kernel, wrong_type = compile_rows(work, "vm", processes=1)
    assert kernels == 1
    assert str(wrong_kernel).startswith(("ConfigError", "TargetError"))
    assert str(wrong_type).startswith("DtypeError")


def test_the_reduction_kernel_is_compiled_too() -> None:
    row = Row("shapes", 16, 16, 256, "e4m3")
    assert compile_row(row, "tma:64x16x128:1:2*2", "vm") == 2


def test_no_rows() -> None:
    assert compile_rows([], "vm") == []
