"""Time variants of the promotion of 8-bit floats: control bits of its FP32 instructions, and turns.

    python benchmarks/promotion_variants.py
    python benchmarks/promotion_variants.py --rows dense-1:4096x4096x4096=chosen,plain,turns,exact

A row is KIND-GROUPS:SIZES=VARIANT,… with the kinds of ``grouped_scales.py``, and variants:

    chosen    what runs; with block scales, FFMAs keep operands as sass.schedule.kept_operands says
    plain     ptxas' code of it
    all       FFMAs keep operands and do not yield, in whatever way they promote
    third     the same, but every third yield of ptxas stays
    eighth    the same with every eighth
    steady    FP32 instructions that do not yield
    yields    FP32 instructions that yield and keep nothing
    turns     as chosen; the warpgroups of a CTA issue their wgmmas in turns
    exact     the product without scales, promoted as exact 8-bit floats are

``NAME/CONFIG`` takes another configuration, ``exact-NAME`` the variant of the product without
scales. A line has median times of CUDA-graph replays, interleaved on a busy GPU, with random inputs
that rotate past the L2; the ratio of the first variant's time to it (above 1: it is faster), and
whether its bits are those of the first one with scales, or without. Needs an NVIDIA GPU of sm_90a
and PyTorch.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

os.environ["TILEWRIGHT_CACHE_DIR"] = tempfile.mkdtemp()  # kernels are changed here

import numpy as np
import torch
from compare.peers import machine
from compare.stats import Ratio
from grouped_scales import Case, Work, compile_ahead, timed

import tilewright
from tilewright.gemm.tma import tile_scheduler, tma_kernel
from tilewright.gemm.tma.mainloop.tma_mainloop import PromotedMainloop
from tilewright.gemm.tma.mainloop.tma_scaled_mainloop import ScaledMainloop
from tilewright.gemm.tma.tma_geometry import WARPGROUP
from tilewright.run.call import prepared_call
from tilewright.run.devices import cuda_device
from tilewright.sass import CubinFile
from tilewright.sass.cubin_file import TEXT
from tilewright.sass.schedule import kept_operands

STEP = 1024  # a variant's rasterization group is that of the configuration plus a multiple of it
TURN_BARRIER = 8  # the first named barrier of the warpgroups' turns
REUSE, STAYS, STALL = 7 << 58, 1 << 45, 41  # in the upper half of a word
Edit = Callable[[Any, str], Any]

FLAGS, TALL = "chosen,plain,all,third,eighth", "tma:256x96x128:2:4@16"
ROWS = (
    f"dense-1:4096x4096x4096={FLAGS}",
    f"dense-1:8192x8192x8192={FLAGS}",
    f"dense-1:4096x7168x2048={FLAGS}",
    f"dense-1:4096x2112x7168={FLAGS},chosen/{TALL},plain/{TALL}",
    f"contiguous-8:512x4096x4096={FLAGS}",
    f"contiguous-4:8192x7168x3072={FLAGS}",
)


# --- variants: machine code ---------------------------------------------------------------------


def plain(cubin: Any, name: str) -> Any:
    """ptxas' code."""
    return cubin


def edited(cubin: Any, name: str, change: Callable[[Any, Any], None]) -> Any:
    """With the upper halves of FP32 instructions changed; those that stall for 1 to 11 cycles."""
    file = CubinFile.parse(cubin.code)
    index = file.index(TEXT + name)
    words = np.frombuffer(file.code(name), "<u8").reshape(-1, 2).copy()
    stall = words[:, 1] >> np.uint64(STALL) & np.uint64(15)
    opcode = words[:, 0] & np.uint64(0xFFF)
    chosen = np.isin(opcode, list(kept_operands.SLOTS)) & (stall >= 1) & (stall <= 11)
    change(words, chosen)
    assert index is not None
    return replace(cubin, code=file.with_data(index, words.tobytes()).build())


def steady(cubin: Any, name: str) -> Any:
    def change(words: Any, chosen: Any) -> None:
        words[chosen, 1] |= np.uint64(STAYS)

    return edited(cubin, name, change)


def yields(cubin: Any, name: str) -> Any:
    def change(words: Any, chosen: Any) -> None:
        words[chosen, 1] &= ~np.uint64(REUSE | STAYS)

    return edited(cubin, name, change)


def keeps(cubin: Any, name: str, each: int = 0) -> Any:
    """With all flags, but every ``each``th of ptxas' yields stays."""

    def change(words: Any, chosen: Any) -> None:
        yielding = np.flatnonzero(chosen & (words[:, 1] & np.uint64(STAYS) == 0))
        left = yielding[each - 1 :: each] if each else yielding[:0]
        own = words[left].copy()
        words[:] = kept_operands.with_reuse(words)
        words[left] = own

    return edited(cubin, name, change)


SHIPPED: Edit = cuda_device.rescheduled


class Variant(NamedTuple):
    """What is done with ptxas' code, and whether warpgroups issue in turns."""

    edit: Edit = SHIPPED
    turns: bool = False


VARIANTS = {
    "chosen": Variant(), "plain": Variant(plain), "steady": Variant(steady),
    "yields": Variant(yields), "turns": Variant(turns=True), "all": Variant(keeps),
    "third": Variant(partial(keeps, each=3)), "eighth": Variant(partial(keeps, each=8)),
}  # fmt: skip
NAMES = list(VARIANTS)


def variant_of(group: int) -> Variant:
    """The variant that a rasterization group stands for."""
    return VARIANTS[NAMES[group // STEP]]


def serialized(self: Any, kernel: Any) -> Any:
    """The kernel's machine code, of the variant in its text."""
    found = re.search(r"\bgroup=(\d+)", kernel.text)
    edit = variant_of(int(found[1])).edit if found else SHIPPED
    traced = kernel.trace()
    cubin = edit(self.assemble(traced), traced.name)
    return cuda_device.SerializedKernel(traced.name, traced.dynamic_shared, cubin)


cuda_device.CudaDevice._serialized = serialized  # type: ignore[method-assign]


# --- variants: turns ----------------------------------------------------------------------------


class InTurns(PromotedMainloop):
    """A warpgroup issues its wgmmas after those of the one before, by named barriers."""

    def __init__(self, k: Any, *more: Any) -> None:
        super().__init__(k, *more)
        consumers = self.config.consumers
        self.own = k.shfl("idx", (k.tid.x >> 7) + (TURN_BARRIER - 1), 0)
        last = TURN_BARRIER + consumers - 1
        self.following = k.mov(k.select(self.own == last, TURN_BARRIER, self.own + 1))
        with k.if_(self.own == last):
            self._give()

    def _give(self) -> None:
        self.k.emit("bar.arrive", self.following, 2 * WARPGROUP)

    def _issue(self, index: int) -> None:
        k = self.k
        if self.by_stage or index == 0:
            self.stages.pipeline.consumer_wait(self.state)
        k.emit("bar.sync", self.own, 2 * WARPGROUP)
        k.wgmma_fence()
        self._issue_wgmmas(self.sets[index], False, index)
        k.wgmma_commit()
        self._give()


class ScaledInTurns(ScaledMainloop, InTurns):
    """The same with block scales."""


MAINLOOP = tma_kernel.TmaKernel._mainloop
COORDINATES = tile_scheduler.tile_coordinates


def mainloop(self: Any, consumer: Any, state: Any) -> Any:
    problem, config = self.problem, self.config
    possible = config.consumers == 2 and not config.pingpong and problem.promoted
    if not (possible and variant_of(config.group).turns):
        return MAINLOOP(self, consumer, state)
    more = self.stages, self.scheduler, consumer, self.order, state
    if self.scales:
        return ScaledInTurns(self.k, problem, config, self.scales, *more)
    return InTurns(self.k, problem, config, *more)


def tile_coordinates(k: Any, tile: Any, rows: Any, columns: Any, group: int) -> Any:
    return COORDINATES(k, tile, rows, columns, group % STEP)


tma_kernel.TmaKernel._mainloop = mainloop  # type: ignore[method-assign]
tile_scheduler.tile_coordinates = tile_coordinates


# --- rows ---------------------------------------------------------------------------------------


class Resolved(Exception):
    """A call's configuration, before its kernels are loaded."""


def chosen_config(work: Work) -> str:
    """The configuration that a call chooses."""

    def resolve(call: Any) -> Any:
        raise Resolved(str(call.config))

    loaded = prepared_call.PreparedCall._kernels
    prepared_call.PreparedCall._kernels = property(resolve)  # type: ignore[assignment]
    try:
        work(0)
    except Resolved as found:
        return str(found)
    finally:
        prepared_call.PreparedCall._kernels = loaded
    raise RuntimeError("the call has launched kernels that it had before")


class VariantCase(Case):
    """A row's operands and variants."""

    def __init__(self, row: str, room: int) -> None:
        name, _, variants = row.partition("=")
        super().__init__(f"{name}=chosen", room)
        self.works = {}
        known: dict[str, str] = {}
        for variant in variants.split(","):
            kind, change, config = parsed(variant)
            if not config and kind not in known:
                known[kind] = chosen_config(self._work(kind, None))
            text = with_variant(config or known[kind], change)
            self.works[variant] = self._work(kind, text)

    def _ours(self, kind: str, options: dict[str, Any], s: dict[str, torch.Tensor]) -> Any:
        if kind != "exact":
            return super()._ours(kind, options, s)
        return tilewright.matmul(s["a"], s["b"][0], out=s["d"], **options)

    def bits(self, name: str) -> torch.Tensor:
        """The result of a variant for the first operands."""
        self.sets[0]["d"].zero_()
        return self.works[name](0).clone()


def parsed(variant: str) -> tuple[str, str, str]:
    """Kind (``exact`` or nothing), name in VARIANTS, and configuration of a variant."""
    name, _, config = variant.partition("/")
    kind = "exact" if name.startswith("exact") else ""
    return kind, name.removeprefix(kind).removeprefix("-") or "chosen", config


def with_variant(config: str, name: str) -> str:
    """The configuration whose rasterization group stands for a variant."""
    if "@" not in config:
        config = f"{config.rstrip('~')}@16{'~' * config.endswith('~')}"
    return re.sub(r"@(\d+)", lambda m: f"@{int(m[1]) + STEP * NAMES.index(name)}", config)


def lines(case: VariantCase) -> list[str]:
    """The lines of a row, one for each variant."""
    times = timed(case)
    made, expected = list(times.failures), dict[str, torch.Tensor]()
    first = next(iter(times.seconds.values()))
    for name, seconds in times.seconds.items():
        ratio = Ratio.of([one / it for one, it in zip(first, seconds, strict=True)])
        bits = case.bits(name)
        same = torch.equal(expected.setdefault(parsed(name)[0], bits), bits)
        cells = [
            case.name, name, f"{times.microseconds(name):.2f}",
            f"{ratio.median:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]", "same" if same else "OTHER",
        ]  # fmt: skip
        made.append(f"| {' | '.join(cells)} |")
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="*", default=ROWS, help="KIND-GROUPS:SIZES=VARIANT,…")
    given = parser.parse_args()
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    room = 3 * torch.cuda.get_device_properties(0).L2_cache_size
    cases = [VariantCase(row, room) for row in given.rows]
    compile_ahead(cases)
    print("| row | variant | µs | the first / it | bits |\n|---|---|---|---|---|")
    for case in cases:
        print("\n".join(lines(case)), flush=True)
        case.sets.clear()


if __name__ == "__main__":
    sys.exit(main())
