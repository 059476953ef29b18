"""What kernels do with their parameters alike: global addresses, α and β, sizes and indices."""

from __future__ import annotations

from typing import Any

from ..builder import Builder, Pointer, Reg


def global_pointer(k: Builder, address: Reg) -> Pointer:
    """A generic address as bytes of global memory."""
    return k.pointer("global", "b8", k.emit("cvta.to.global.u64", address))


def scalar(k: Builder, value: Reg, address: Reg, *, early: bool = False) -> Reg:
    """α or β: ``value``, or the number at ``address`` if it is not 0. ``early``: the previous
    kernels may still be running.
    """
    chosen = k.var(value)
    if early:
        with k.if_(address != 0):
            k.wait_for_prior_grids()
    with k.when(address != 0):
        k.emit(f"ld.global.{value.dtype.name}", global_pointer(k, address), into=chosen)
    return chosen


def limited(k: Builder, size: Any, low: Any, high: Any) -> Any:
    """``size``, of s32 or s64, as u32: at least ``low`` and at most ``high``."""
    if size.dtype.name == "s64":
        return k.min(k.max(size, low.to("s64")), high.to("s64")).to("u32")
    return k.min(k.max(size, low.view("s32")), high.view("s32")).view("u32")
