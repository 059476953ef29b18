"""The options that say which GEMM: sizes, types, layout, device, configuration."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from ..gemm.problem import SUPPORTED_TYPES
from ..run import Plan, plan
from ..run.call.gemm_plan import LAYOUTS


def whole(least: int) -> Callable[[str], int]:
    """The type of an option that is a whole number, so much at least."""

    def parsed(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(f"a whole number from {least} on, not {text!r}")
        return value

    return parsed


def add_sizes(to: argparse.ArgumentParser) -> None:
    """``sizes``: M, N and K, each an argument of its own, so that a missing one is named."""
    for letter in "MNK":
        to.add_argument("sizes", action="append", type=int, metavar=letter)


def add_problem(to: argparse.ArgumentParser) -> None:
    """The options of a problem, without its sizes."""
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
        help="how A and B lie, as BLAS says it: t row-major, n column-major (default: tn)",
    )
    to.add_argument(
        "--device", default="auto", help="auto (default), vm, vm:A100, …, cuda, cuda:1, …"
    )


def add_config(to: argparse.ArgumentParser) -> None:
    """The option that names the kernel's configuration."""
    to.add_argument("--config", default=None, help="configuration, as tma:128x128x64:2p:5")


def plan_of(
    given: argparse.Namespace, sizes: list[int], *, with_c: bool = False, **more: Any
) -> Plan:
    """The plan that the options ask for, and ``more`` of what ``plan`` takes."""
    if "config" in given:
        more["config"] = given.config
    types = given.a if given.b in (None, given.a) else f"{given.a},{given.b}"
    wanted: dict[str, Any] = {"dtype": types, "layout": given.layout, "out_dtype": given.d}
    return plan(*sizes, **wanted, c=with_c, device=given.device, **more)
