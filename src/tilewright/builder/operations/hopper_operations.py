"""What Hopper does asynchronously, as the builder's methods: mbarriers, bulk and tensor copies,
warpgroups' products, clusters.

Thin names over instructions, each one row of the instruction table. A thread that issues for others
is chosen by ``elect``; most methods act for every thread that reaches them, so they stand under
``k.when`` or ``k.if_``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...dtypes import DTYPES
from ...layout import Layout, Tensor, product_each
from ...layout.composed_layout import AnyLayout, inside
from ...layout.symbolic import add
from ...mma import TmaTiling
from ...mma.tensor_maps.tma_boxes import ALIGNMENT
from ...ptx import tree
from ..source_location import kernel_error
from ..tensors.wgmma_fragments import check_start
from ..values.pointer import Pointer
from ..values.registers import Reg, is_integer, other_trace_error
from .control_flow import ControlFlow
from .warp_operations import FULL, check_pending

TX = "mbarrier::complete_tx::bytes"
COUNTS = 1 << 20  # what an mbarrier's fields hold


class HopperOperations(ControlFlow):
    """Instructions of sm_90 and sm_90a."""

    # --- mbarriers ---

    def mbarrier_init(self, barrier: Any, count: Any) -> None:
        """A barrier at ``barrier`` (8 bytes of shared memory): its phases end after ``count``
        arrivals. Others see it after ``fence_mbarrier_init`` and a barrier of the CTA or cluster.
        """
        _within("the arrivals of an mbarrier's phase", count, 1)
        self.emit("mbarrier.init.shared::cta.b64", barrier, count)

    def fence_mbarrier_init(self) -> None:
        """What was initialised is seen by asynchronous copies and by the cluster."""
        self.emit("fence.mbarrier_init.release.cluster")

    def mbarrier_arrive(self, barrier: Any, *, bytes: Any = None, rank: Any = None) -> None:
        """Arrive once; after ``bytes`` more are expected. ``rank``: at the same barrier of the
        cluster's CTA of that rank.
        """
        if bytes is not None:
            _within("the bytes that an mbarrier expects", bytes, 0)
        more = () if bytes is None else (bytes,)
        what = "arrive" if bytes is None else "arrive.expect_tx"
        if rank is None:
            self.emit(f"mbarrier.{what}.shared::cta.b64", barrier, *more)
        else:
            there = self.mapa(barrier, rank)
            self.emit(f"mbarrier.{what}.release.cluster.shared::cluster.b64", there, *more)

    def mbarrier_try_wait(self, barrier: Any, parity: Any) -> Reg:
        """Whether the phase of that parity has ended (a thread may sleep a while first)."""
        return self.emit("mbarrier.try_wait.parity.shared::cta.b64", barrier, parity)

    def mbarrier_wait(self, barrier: Any, parity: Any) -> None:
        """Wait until the phase of that parity (0 or 1) has ended."""
        again = self.label("wait")
        self.place_label(again)
        ended = self.mbarrier_try_wait(barrier, parity)
        self._branch(ended, again, negated=True)

    def cp_async_mbarrier_arrive(self, barrier: Any, *, noinc: bool = False) -> None:
        """Arrive when this thread's ``cp_async`` copies so far have landed. The phase waits for it
        beyond the arrivals that the barrier was made with, or (``noinc``) as one of them.
        """
        self.emit(f"cp.async.mbarrier.arrive{'.noinc' * noinc}.shared::cta.b64", barrier)

    # --- tensor copies ---

    def tma_load(
        self,
        dst: Pointer | Tensor,
        tensor_map: Any,
        coordinates: Sequence[Any],
        barrier: Any,
        *,
        ctas: Any = None,
        hint: Any = None,
        im2col: Sequence[Any] | None = None,
    ) -> None:
        """Copy the box at ``coordinates`` (innermost first) to shared memory; ``barrier`` hears of
        its bytes. ``dst`` begins at a multiple of 128 bytes, and where the map swizzles by 32, 64
        or 128, of the swizzle's period, 256, 512 or 1024: addresses are swizzled. A tensor, of
        which that must be known, takes as many boxes as fill it, of a map that was made for its
        layout. ``ctas``: a mask of the cluster's CTAs that all get it, each at this place with its
        own barrier. ``im2col``: the pixels from there on, each read at these offsets (u16) in W, H,
        D, by a map for that.
        """
        first, mode = _coordinates(coordinates), "tile" if im2col is None else "im2col"
        words = ["cp.async.bulk.tensor", f"{len(first)}d", "shared::cluster.global", mode, TX]
        more = () if im2col is None else (im2col,)
        for place, at in _boxes(dst, first):
            source = self.tensor_address(tensor_map, at)
            self._emit_with(words, (place, source, barrier, *more), ctas, hint)

    def tma_store(self, tensor_map: Any, coordinates: Sequence[Any], src: Pointer | Tensor) -> None:
        """Copy the box, or a tensor's boxes, out of shared memory, in this thread's current bulk
        group. ``src`` begins where a ``tma_load`` could have put it.
        """
        first = _coordinates(coordinates)
        opcode = f"cp.async.bulk.tensor.{len(first)}d.global.shared::cta.tile.bulk_group"
        for place, at in _boxes(src, first):
            self.emit(opcode, self.tensor_address(tensor_map, at), place)

    def tma_reduce(
        self, tensor_map: Any, coordinates: Sequence[Any], src: Pointer, op: str = "add"
    ) -> None:
        """Combine the box in shared memory with the tensor's, element by element, in this thread's
        current bulk group. ``op``: add min max inc dec and or xor, as the map's type has it.
        """
        at = _coordinates(coordinates)
        opcode = f"cp.reduce.async.bulk.tensor.{len(at)}d.global.shared::cta.{op}.tile.bulk_group"
        self.emit(opcode, self.tensor_address(tensor_map, at), src)

    def tma_prefetch(self, tensor_map: Any, coordinates: Sequence[Any]) -> None:
        """A hint: the box will be copied; it goes to the L2 cache."""
        at = _coordinates(coordinates)
        opcode = f"cp.async.bulk.prefetch.tensor.{len(at)}d.L2.global.tile"
        self.emit(opcode, self.tensor_address(tensor_map, at))

    def tma_prefetch_map(self, tensor_map: Any) -> None:
        """A hint: the map will be used."""
        self.emit("prefetch.tensormap", tree.Address(self.map_address(tensor_map).operand))

    # --- bulk copies ---

    def bulk_load(
        self,
        dst: Any,
        src: Pointer,
        bytes: Any,
        barrier: Any,
        *,
        ctas: Any = None,
        hint: Any = None,
    ) -> None:
        """Copy ``bytes`` of global memory to shared memory, all multiples of 16; ``barrier`` hears
        of them. ``ctas`` as for ``tma_load``.
        """
        words = ["cp.async.bulk.shared::cluster.global", TX]
        self._emit_with(words, (dst, src, bytes, barrier), ctas, hint)

    def bulk_store(self, dst: Pointer, src: Any, bytes: Any, *, hint: Any = None) -> None:
        """Copy ``bytes`` of shared memory to global memory, all multiples of 16, in this thread's
        current bulk group.
        """
        words = ["cp.async.bulk.global.shared::cta.bulk_group"]
        self._emit_with(words, (dst, src, bytes), None, hint)

    def bulk_reduce(
        self, dst: Any, src: Pointer, bytes: Any, op: str = "add", *, barrier: Any = None
    ) -> None:
        """Combine ``bytes`` of shared memory, elements of ``src``'s type, with those at ``dst``: of
        global memory, in this thread's current bulk group; or with a ``barrier`` of shared memory,
        which it stands beside: ``mapa`` gives both in another CTA of the cluster.
        """
        if not isinstance(src, Pointer):
            raise kernel_error(f"bulk_reduce takes a pointer with the elements' type, not {src!r}")
        t = src.dtype
        type_ = f"b{t.bits}" if op in ("and", "or", "xor") else t.name
        if op == "add" and t.name in ("f16", "bf16"):
            type_ = f"noftz.{t.name}"
        if op == "add" and t.name == "s64":
            type_ = "u64"
        if barrier is None:
            opcode = f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{op}.{type_}"
            self.emit(opcode, dst, src, bytes)
        else:
            opcode = f"cp.reduce.async.bulk.shared::cluster.shared::cta.{TX}.{op}.{type_}"
            self.emit(opcode, dst, src, bytes, barrier)

    def _emit_with(self, words: list[str], operands: tuple[Any, ...], ctas: Any, hint: Any) -> None:
        """An instruction with the words and operands of what is asked for besides."""
        for word, operand in (("multicast::cluster", ctas), ("L2::cache_hint", hint)):
            if operand is not None:
                words, operands = [*words, word], (*operands, operand)
        self.emit(".".join(words), *operands)

    def bulk_commit(self) -> None:
        """This thread's bulk copies since the last commit become a group."""
        self.emit("cp.async.bulk.commit_group")

    def bulk_wait(self, pending: int = 0, *, read: bool = False) -> None:
        """Until at most ``pending`` groups are under way (``read``: still read shared memory)."""
        check_pending(pending)
        self.emit(f"cp.async.bulk.wait_group{'.read' * read}", pending)

    def fence_async(self) -> None:
        """What threads wrote to shared memory is seen by asynchronous copies and products."""
        self.emit("fence.proxy.async.shared::cta")

    def tensor_address(self, tensor_map: Any, coordinates: Sequence[Any]) -> tree.Address:
        """The operand ``[map, {c0, c1, …}]``; coordinates are registers or numbers, as s32."""
        items = tuple(map(self._coordinate, _coordinates(coordinates)))
        return tree.Address(self.map_address(tensor_map).operand, 0, items)

    def _coordinate(self, c: Any) -> Any:
        if not isinstance(c, Reg):
            return self.immediate(DTYPES["s32"], c)
        if c.dtype.bits != 32 or c.dtype.kind not in ("int", "uint"):
            raise kernel_error(f"a coordinate has 32 bits, not {c.dtype.name}")
        if c.k is not self:
            raise other_trace_error(c)
        return c.operand

    def map_address(self, tensor_map: Any) -> Reg:
        """The generic address of a map: a parameter's (``by_value(128)``), or a pointer's."""
        if isinstance(tensor_map, Reg):
            return tensor_map
        if not isinstance(tensor_map, Pointer):
            raise kernel_error(f"a tensor map is a parameter or an address, not {tensor_map!r}")
        address = tensor_map.address()
        if not tensor_map.space:
            return address
        return self.emit_once((address, "generic"), f"cvta.{tensor_map.space}.u64", address)

    # --- products ---

    def wgmma(
        self,
        instruction: Any,
        d: Sequence[Any],
        a: Any,
        b: Any,
        *,
        accumulate: Any = True,
        signs: tuple[int, int] = (1, 1),
        trans: tuple[int, ...] | None = None,
    ) -> None:
        """D = A B, or A B + D where ``accumulate``, by the four warps of a warpgroup, later.

        ``d`` are variables; ``a`` a descriptor (u64) or fragments, ``b`` a descriptor. ``trans``
        says which operands in shared memory are MN-major (16-bit types only).
        """
        opcode = instruction if isinstance(instruction, str) else instruction.opcode
        of_half = opcode.rsplit(".", 1)[-1] in ("f16", "bf16")
        shared = not isinstance(a, (tuple, list))
        flags = trans if trans is not None else (0, 0) if shared else (0,)
        immediates = (*signs, *flags) if of_half else signs
        if "s32" in opcode.split("."):
            immediates = ()
        scale_d = accumulate if isinstance(accumulate, Reg) else int(bool(accumulate))
        self.emit(opcode, a if shared else tuple(a), b, scale_d, *immediates, into=tuple(d))

    def wgmma_fence(self) -> None:
        """Registers written before are there for the products that follow."""
        self.emit("wgmma.fence.sync.aligned")

    def wgmma_commit(self) -> None:
        """The products since the last commit become a group."""
        self.emit("wgmma.commit_group.sync.aligned")

    def wgmma_wait(self, pending: int = 0) -> None:
        """Until at most ``pending`` groups of products are under way."""
        self.emit("wgmma.wait_group.sync.aligned", pending)

    # --- clusters, warps, grids ---

    def mapa(self, address: Any, rank: Any) -> Reg:
        """The same place in the shared memory of the cluster's CTA of that rank, 32 bits."""
        place = address.address() if isinstance(address, Pointer) else address
        return self.emit("mapa.shared::cluster.u32", place, rank)

    def cluster_arrive(self) -> None:
        self.emit("barrier.cluster.arrive.release.aligned")

    def cluster_wait(self) -> None:
        self.emit("barrier.cluster.wait.acquire.aligned")

    def cluster_sync(self) -> None:
        """A barrier of all threads of the cluster."""
        self.cluster_arrive()
        self.cluster_wait()

    @property
    def cluster_rank(self) -> Reg:
        """The CTA's number within its cluster."""
        return self.special("cluster_ctarank")

    def elect(self) -> Reg:
        """A predicate that holds in one lane of the (whole) warp."""
        return self.emit("elect.sync", FULL, pair=True)[1]

    def setmaxnreg(self, count: int, *, inc: bool) -> None:
        """The warpgroup's threads give registers back, or wait until they have more."""
        self.emit(f"setmaxnreg.{'inc' if inc else 'dec'}.sync.aligned.u32", count)

    def wait_on_dependent_grids(self) -> None:
        """Until the grids before this one have ended, and what they wrote is seen.

        In a block of its own (there is always a CTA): else ptxas moves it up, before what was to be
        done while they run.
        """
        with self.if_(self.special("nctaid.x") != 0):
            self.emit("griddepcontrol.wait")

    def launch_dependent_grids(self) -> None:
        """The grid after this one may begin."""
        self.emit("griddepcontrol.launch_dependents")


def _within(what: str, given: Any, least: int) -> None:
    """That a number, where it is one, is what an mbarrier counts to."""
    if is_integer(given) and not least <= given < COUNTS:
        raise kernel_error(f"{what} are {least} to {COUNTS - 1}, not {given}")


def _coordinates(given: Any) -> tuple[Any, ...]:
    """One to five registers and whole numbers."""
    try:
        found = tuple(given)
    except TypeError:
        raise kernel_error(f"coordinates are several, innermost first, not {given!r}") from None
    if not 1 <= len(found) <= 5:
        raise kernel_error(f"a tensor has one to five coordinates, not {len(found)}")
    for c in found:
        if not isinstance(c, Reg) and not is_integer(c):
            raise kernel_error(f"a coordinate is a whole number or a register, not {c!r}")
    return found


def _boxes(
    tile: Pointer | Tensor, coordinates: Sequence[Any]
) -> Iterator[tuple[Pointer, Sequence[Any]]]:
    """The place of each box of a tile and its coordinates: those of the tile's first, moved on."""
    if not isinstance(tile, Tensor):
        yield tile, coordinates
        return
    if not isinstance(tile.engine, Pointer) or not tile.engine.space.startswith("shared"):
        raise kernel_error(f"a tensor copy goes to and from shared memory, not {tile}")
    boxes = TmaTiling.of(_whole(tile.layout), tile.layout, tile.dtype.bits)
    check_start(tile.engine, ALIGNMENT, boxes.swizzle, "a tensor copy moves")
    for box in boxes.parts:
        moved = [add(c, n) for c, n in zip(coordinates, box.coordinates, strict=False)]
        yield tile.engine.add_bytes(box.offset), [*moved, *coordinates[len(moved) :]]


def _whole(shared: AnyLayout) -> Layout:
    """A tensor of which a tile in shared memory is all, contiguous where the tile is."""
    shape = product_each(shared.shape)
    plain = inside(shared)
    first = next((i for i, mode in enumerate(plain) if mode(1) == 1 and mode.size() > 1), 0)
    order = [first, *(i for i in reversed(range(len(shape))) if i != first)]
    strides, step = [0] * len(shape), 1
    for i in order:
        strides[i], step = step, step * shape[i]
    return Layout(shape, tuple(strides))
