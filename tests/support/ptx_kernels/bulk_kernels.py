"""Kernels of bulk reductions, and what they leave by NumPy; for the virtual machine and a GPU.

Each has one thread combine a buffer's elements (%a1) with those of another (%a0), by way of shared
memory: all of it (``to_global``), a box that a tensor map at %a2 describes (``to_tensor``), or in
the shared memory of the cluster's other CTA (``to_neighbour``).
"""

from __future__ import annotations

import numpy as np

from ptx_kernels import simt
from tilewright.dtypes import dtype
from tilewright.mma import TensorMap
from tilewright.mma.tensor_maps.tensor_map_parameters import TYPES
from tilewright.mma.tensor_maps.tma_copy import copy_addresses
from tilewright.number_conversion import decode, encode
from tilewright.vm.engine.async_reductions import OPERATIONS

BYTES = 4096
FLOATS = ("f16", "bf16", "f32", "f64")
ATOMIC = {op: types.replace(" f32.ftz", "").split() for op, types in OPERATIONS.items()}
PAIRS = [(op, type_) for op, types in ATOMIC.items() for type_ in types]
INTO_SHARED = [("add", "u32"), ("add", "u64"), ("min", "s32"), ("max", "u32"), ("inc", "u32"),
               ("dec", "u32"), ("xor", "u32")]  # fmt: skip


def special(type_: str) -> np.ndarray:
    """16 numbers, as bits. Floats: of both signs zero, subnormals, the smallest normal ones, the
    largest, infinity, a signaling and a quiet NaN.
    """
    t = dtype(type_)
    size, half = f"u{t.bits // 8}", 1 << t.bits - 1
    if type_ not in FLOATS:
        made = [0, 1, 2, 3, 4, 7, half - 2, half - 1, half, half + 1, 2 * half - 2, 2 * half - 1]
        rng = np.random.default_rng(t.bits)
        return np.append(np.array(made, size), rng.integers(0, 2 * half, 4, size, endpoint=False))
    normal, infinity = 1 << t.mantissa, t.max_finite + 1
    quiet = infinity + normal // 2
    made = [0, 1, normal - 1, normal, infinity - 1, infinity, infinity + 1, quiet + 2]
    return np.array(made + [half | x + (x in (normal, quiet + 2)) for x in made], size)


def every_pair(type_: str) -> tuple[np.ndarray, np.ndarray]:
    """All special numbers with all: (what is there, what comes), 256 of each."""
    comes, there = np.meshgrid(special(type_), special(type_))
    return there.ravel(), comes.ravel()


def spelled(op: str, type_: str) -> str:
    """Operation and type as cp.reduce.async.bulk has them."""
    if op in ("and", "or", "xor"):
        return f"{op}.b{type_[1:]}"
    return f"{op}.noftz.{type_}" if op == "add" and type_ in ("f16", "bf16") else f"{op}.{type_}"


def operands(op: str, type_: str, count: int = 0, seed: int = 0) -> list[np.ndarray]:
    """What is there and what comes, as bits: all special numbers with all, small ones, others.
    ``count`` of them, or ``BYTES``.
    """
    count = count or BYTES * 8 // dtype(type_).bits
    rng, size = np.random.default_rng([seed, *f"{op}{type_}".encode()]), dtype(type_).bits
    made = [rng.integers(0, 2**size, count, f"u{size // 8}", endpoint=False) for _ in range(2)]
    small = count // 4
    for x in made:
        x[:small] = rng.integers(0, 3, small)
    if type_ in FLOATS:
        numbers = slice(small, count // 2)  # those whose sum is not mostly the larger
        for x, specials in zip(made, every_pair(type_), strict=True):
            x[numbers] = encode(type_, rng.standard_normal(count)[numbers])
            x[: min(count, specials.size)] = specials[:count]
    return made


def same(made: np.ndarray, expected: np.ndarray, *given: np.ndarray) -> None:
    """The same bits, or AssertionError with where they differ and what was ``given`` there."""
    assert not (differing := difference(made, expected, *given)), differing


def difference(made: np.ndarray, expected: np.ndarray, *given: np.ndarray, most: int = 20) -> str:
    """What ``same`` says: nothing, or how many differ, and ``most`` of them."""
    wrong = np.flatnonzero(made != expected)
    rows = [
        f"  [{i}] of {' '.join(f'{int(x[i]):#x}' for x in given)}:"
        f" {int(made[i]):#x}, not {int(expected[i]):#x}"
        for i in wrong[:: -(-wrong.size // most) or 1]
    ]
    return "\n".join([f"{wrong.size} of {made.size} differ", *rows]) if rows else ""


def combined(op: str, type_: str, old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """The bits that the reduction leaves."""
    if type_.partition(".")[0] in FLOATS:
        return _floats(op, type_, old, new)
    a, b = old.view(dtype(type_).numpy), new.view(dtype(type_).numpy)
    one = a.dtype.type(1)
    made = {
        "add": lambda: a + b,
        "min": lambda: np.minimum(a, b),
        "max": lambda: np.maximum(a, b),
        "inc": lambda: np.where(a >= b, a - a, a + one),
        "dec": lambda: np.where((a == 0) | (a > b), b, a - one),
        "and": lambda: a & b,
        "or": lambda: a | b,
        "xor": lambda: a ^ b,
    }[op]()
    return made.astype(a.dtype).view(old.dtype)


def _floats(op: str, type_: str, old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Sums round once; a NaN of f64 comes back as it is, ``new`` before ``old``. For minimum and
    maximum a NaN loses to a number, −0 is below +0. ``f32.ftz`` flushes subnormals.
    """
    if type_ == "f32.ftz":
        return _flushed(_floats(op, "f32", _flushed(old), _flushed(new)))
    x, y = decode(type_, old), decode(type_, new)
    if op == "add":
        with np.errstate(all="ignore"):
            made = encode(type_, x + y)  # exact, or rounds again to the same
        if type_ == "f64":
            made = np.where(np.isnan(y), new, np.where(np.isnan(x), old, made))
        return made
    low, high = (np.signbit(x), np.signbit(y)) if op == "min" else (np.signbit(y), np.signbit(x))
    with np.errstate(invalid="ignore"):
        first = (x < y) if op == "min" else (x > y)
    first = np.where(x == y, low >= high, first) | np.isnan(y)
    made = np.where(first & ~np.isnan(x), old, new)
    return np.where(np.isnan(x) & np.isnan(y), encode(type_, np.nan), made).astype(old.dtype)


def _flushed(bits: np.ndarray) -> np.ndarray:
    return np.where(bits & 0x7F800000, bits, bits & 0x80000000).astype(bits.dtype)


# --- kernels --------------------------------------------------------------------------------------

WHOLE = """mad.lo.u32 %r9, %t, 16, %r8; mad.wide.u32 %rd9, %t, 16, {base}; mov.u32 %r10, 0;
{label}: {body} add.u32 %r9, %r9, 512; add.u64 %rd9, %rd9, 512; add.u32 %r10, %r10, 512;
setp.lt.u32 %p1, %r10, {bytes}; @%p1 bra {label};"""
V = "{%r4, %r5, %r6, %r7}"
LOAD = f"ld.global.v4.u32 {V}, [%rd9]; st.shared.v4.u32 [%r9], {V};"
STORE = f"ld.shared.v4.u32 {V}, [%r9]; st.global.v4.u32 [%rd9], {V};"
TOP = ".shared .align 1024 .b8 buf[{bytes}]; .shared .align 8 .b64 bar;"
BEGIN = "mov.u32 %r8, buf; setp.eq.u32 %p0, %t, 0;"
SEEN = "fence.proxy.async; bar.warp.sync -1;"
LANDED = "@%p0 cp.async.bulk.commit_group; @%p0 cp.async.bulk.wait_group 0;"


def _loaded(base: str, label: str = "F", bytes_: int = BYTES) -> str:
    return WHOLE.format(base=base, label=label, body=LOAD, bytes=bytes_)


def to_global(op: str, type_: str, bytes_: int = BYTES, landed: str = LANDED) -> str:
    """All of a buffer of ``bytes_``, a multiple of 512."""
    opcode = f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{spelled(op, type_)}"
    move = f"@%p0 {opcode} [%a0], [%r8], {bytes_};"
    body = f"{BEGIN} {_loaded('%a1', bytes_=bytes_)} {SEEN} {move} {landed}"
    return simt.kernel(body, TOP.format(bytes=bytes_))


STORED = """@%p0 st.global.u64 [%a2], %a0; fence.proxy.tensormap::generic.release.gpu;"""
REPLACED = """@%p0 tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%rd10], %a0;
bar.warp.sync -1;
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned
    [%a2], [%rd10], 128;"""


def to_tensor(
    op: str, m: TensorMap, coordinates: list[int], landed: str = LANDED, says: str = STORED
) -> str:
    """A box of the tensor at %a0; its map, at %a2 and %rd10 (shared), is made to say so."""
    mode = ".tile" if isinstance(m.box, tuple) else ".im2col_no_offs"
    opcode = f"cp.reduce.async.bulk.tensor.{m.rank}d.global.shared::cta.{op}{mode}.bulk_group"
    at = ", ".join(map(str, coordinates))
    body = f"""{BEGIN} {_loaded("%a1")} mov.u32 %r20, map; mad.lo.u32 %r21, %t, 4, %r20;
    mad.wide.u32 %rd11, %t, 4, %a2; ld.global.u32 %r22, [%rd11]; st.shared.u32 [%r21], %r22;
    cvt.u64.u32 %rd10, %r20; bar.warp.sync -1; {says} bar.warp.sync -1;
    fence.proxy.tensormap::generic.acquire.gpu [%a2], 128;
    {SEEN} @%p0 {opcode} [%a2, {{{at}}}], [%r8]; {landed}"""
    return simt.kernel(body, ".shared .align 128 .b8 map[128];" + TOP.format(bytes=BYTES))


WAIT = "W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r11], 0; @!%p2 bra W;"


def to_neighbour(op: str, type_: str, wait: str = WAIT) -> str:
    """Rank 1 has %a0 in shared memory, rank 0 combines %a1 with it, rank 1 writes it to %a0."""
    opcode = "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"
    body = f"""{BEGIN} mov.u32 %r11, bar; mov.u32 %r12, %cluster_ctarank; setp.eq.u32 %p3, %r12, 1;
    and.pred %p4, %p0, %p3; not.pred %p5, %p3; and.pred %p5, %p0, %p5;
    @%p4 mbarrier.init.shared::cta.b64 [%r11], 1; fence.mbarrier_init.release.cluster;
    @%p4 mbarrier.arrive.expect_tx.shared::cta.b64 %rd5, [%r11], {BYTES};
    selp.b64 %rd8, %a0, %a1, %p3; {_loaded("%rd8")} fence.proxy.async;
    barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
    mapa.shared::cluster.u32 %r13, %r8, 1; mapa.shared::cluster.u32 %r14, %r11, 1;
    @%p5 {opcode}.{spelled(op, type_)} [%r13], [%r8], {BYTES}, [%r14];
    @!%p3 bra OVER; {wait}
    {WHOLE.format(base="%a0", label="D", body=STORE, bytes=BYTES)}
    OVER: barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"""
    return simt.kernel(body, TOP.format(bytes=BYTES))


# --- tensors --------------------------------------------------------------------------------------

MAPS = [
    ("u32", (100,), (), (64,), 0),
    ("s32", (40, 30), (192,), (16, 8), 0),
    ("f32", (40, 30), (192,), (32, 8), 128),
    ("f16", (40, 30), (96,), (16, 16), 32),
    ("bf16", (32, 9, 5), (64, 640), (32, 4, 3), 64),
    ("f64", (20, 6), (160,), (8, 4), 64),
    ("s64", (8, 7, 3, 2), (64, 448, 1344), (4, 2, 3, 2), 0),
    ("u64", (4, 5, 3, 2, 2), (32, 160, 480, 960), (4, 3, 2, 1, 2), 32),
]


def check_tensor(type_: str, m: TensorMap, op: str, coordinates, launch=simt.both, says=STORED):
    """A launch leaves of the tensor what NumPy says."""
    size = TYPES[type_].bytes
    spans = [(n - 1) * s for n, s in zip(m.shape[1:], m.strides, strict=True)]
    there = operands(op, type_, -(-(sum(spans) // size + m.shape[0]) // 64) * 64)[0]
    comes = operands(op, type_, seed=1)[1]
    found = copy_addresses(m, coordinates, store=True)
    inside = found.source >= 0
    to, source = (x[inside] // size for x in (found.source, found.shared))
    came = np.zeros_like(there)
    came[to] = comes[source]
    expected = there.copy()
    expected[to] = combined(op, type_, there[to], came[to])
    described = np.frombuffer(m.encode(), np.uint8)
    text = to_tensor(op, m, coordinates, says=says)
    same(launch(text, [there, comes, described])[0], expected, there, came)
