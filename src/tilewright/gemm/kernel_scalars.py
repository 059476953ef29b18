"""What kernels do with their parameters alike: global addresses, α and β."""

from __future__ import annotations

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
