"""Command-line options of a GEMM: sizes, types, layout, device, configuration."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from ..gemm.problem import SUPPORTED_TYPES
from ..run import Plan, plan
from ..run.call.operands.sized_request import LAYOUTS


def int_at_least(least: int) -> Callable[[str], int]:
    """An argparse type: an integer that is at least ``least``."""

    def parsed(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(
                f"must be an integer of at least {least}, got {text!r}"
            )
        return value

    return parsed


def add_size_arguments(to: argparse.ArgumentParser) -> None:
    """Add M, N and K as separate positional arguments, so that argparse names a missing one."""
    for letter in "MNK":
        to.add_argument("sizes", action="append", type=int, metavar=letter)


def add_problem_options(to: argparse.ArgumentParser) -> None:
    """Add the options of a problem except its sizes."""
    types = f"A's type (default: f16): {', '.join(SUPPORTED_TYPES)}"
    to.add_argument("--a", default="f16", metavar="TYPE", help=types)
    to.add_argument("--b", default=None, metavar="TYPE", help="B's type (default: A's)")
    to.add_argument(
        "--d", default=None, metavar="TYPE",
        help="D's type (default: A's; bf16 of 8-bit floats, s32 of integers): f32 and others",
    )  # fmt: skip
    to.add_argument(
        "--layout",
        default="tn",
        type=str.lower,
        choices=LAYOUTS,
        help="layouts of A and B, as in BLAS: t row-major, n column-major (default: tn)",
    )
    to.add_argument(
        "--device", default="auto", help="auto (default), vm, vm:A100, …, cuda, cuda:1, …"
    )


def add_sparse_option(to: argparse.ArgumentParser) -> None:
    """Add the option that makes A or B a 2:4 sparse matrix."""
    to.add_argument("--sparse", choices=("a", "b"), help="the 2:4 sparse matrix, K-major")


def add_config_option(to: argparse.ArgumentParser) -> None:
    """Add the option that sets the kernel's configuration."""
    to.add_argument("--config", default=None, help="configuration, for example tma:128x128x64:2p:5")


def plan_from_options(
    options: argparse.Namespace, sizes: list[int], *, with_c: bool = False, **more: Any
) -> Plan:
    """The plan for the options; ``more`` is passed on to ``plan``."""
    if "config" in options:
        more["config"] = options.config
    types = options.a if options.b in (None, options.a) else f"{options.a},{options.b}"
    arguments: dict[str, Any] = {"dtype": types, "layout": options.layout, "out_dtype": options.d}
    if "sparse" in options:
        arguments["sparse"] = options.sparse
    return plan(*sizes, **arguments, c=with_c, device=options.device, **more)
