"""Tensor copies on the virtual machine equal ``mma.tensor_maps.tma_copy`` byte for byte."""

import numpy as np
import pytest

from ptx_kernels import simt
from rows import every_row
from tilewright.errors import LayoutError, VmFault
from tilewright.mma import Im2col, TensorMap
from tilewright.mma.tensor_maps.tensor_map_parameters import TYPES
from tilewright.mma.tensor_maps.tma_copy import copy_addresses, load, store
from tilewright.vm import Machine

pytestmark = pytest.mark.vm

SIZE = 65536
GIVEN = np.random.default_rng(7).integers(0, 256, SIZE, dtype=np.uint8)

LOAD = """mbarrier.init.shared::cta.b64 [%bar], 1;
mbarrier.arrive.expect_tx.shared::cta.b64 %rd5, [%bar], {bytes};
cp.async.bulk.tensor.{rank}d.shared::cluster.global.{mode}.mbarrier::complete_tx::bytes
    [%buf], [%rd1, {{{coordinates}}}], [%bar]{offsets};
W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%bar], 0; @!%p2 bra W;"""
STORE = """cp.async.bulk.tensor.{rank}d.global.shared::cta.{mode}.bulk_group
    [%rd1, {{{coordinates}}}], [%buf];
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"""
ALL = """mov.u32 %r9, 0;
{label}: add.u32 %r8, %buf, %r9; cvt.u64.u32 %rd8, %r9; add.u64 %rd9, %a0, %rd8;
{body} add.u32 %r9, %r9, 16; setp.lt.u32 %p1, %r9, 65536; @%p1 bra {label};"""
V = "{%r4, %r5, %r6, %r7}"
FILL = ALL.format(label="F", body=f"ld.global.v4.u32 {V}, [%rd9]; st.shared.v4.u32 [%r8], {V};")
DUMP = ALL.format(label="D", body=f"ld.shared.v4.u32 {V}, [%r8]; st.global.v4.u32 [%rd9], {V};")


def kernel(m: TensorMap, coordinates, offsets, stores: bool, bytes_: int) -> str:
    """Load shared memory from %a0, copy with the map at %a1, store shared memory to %a0."""
    words = {
        "rank": m.rank,
        "bytes": bytes_,
        "mode": ("im2col_no_offs" if stores else "im2col") if isinstance(m.box, Im2col) else "tile",
        "coordinates": ", ".join(map(str, coordinates)),
        "offsets": f", {{{', '.join(map(str, offsets))}}}" if offsets else "",
    }
    return simt.kernel(f""".shared .align 1024 .b8 buf[{SIZE}]; .shared .align 8 .b64 bar;
    .reg .b32 %buf, %bar; mov.u32 %buf, buf; mov.u32 %bar, bar; mov.b64 %rd1, %a1;
    {FILL} {(STORE if stores else LOAD).format(**words)} {DUMP}""")


def run(m: TensorMap, memory, coordinates, offsets, stores, machine, on_step=None, bytes_=0):
    """(shared memory, global memory) after the copy; ``m`` maps a tensor at address 0."""
    there = machine.upload(memory)
    placed = TensorMap.replace_address(m.encode(), there)
    text = kernel(m, coordinates, offsets, stores, bytes_)
    result = simt.launch(
        machine, text, [GIVEN, np.frombuffer(placed, np.uint8)], block=1, on_step=on_step
    )
    return result[0], machine.download(there, memory)


def one_in(rng, *choices):
    return choices[rng.integers(len(choices))]


def random_map(rng) -> TensorMap | None:
    """A random map of a small tensor; None if the rules for maps forbid it."""
    type_ = one_in(rng, *TYPES)
    size, rank = TYPES[type_].bytes, int(rng.integers(1, 6))
    interleave = one_in(rng, 0, 0, 0, 16, 32) if rank >= 3 else 0
    swizzle = one_in(rng, 0, 32, 64, 128)
    shape = [int(n) for n in rng.integers(1, 40, rank)]
    strides, span = [], interleave * shape[0] or -(-shape[0] * size // 16) * 16
    for n in shape[1:]:
        strides.append(-(-(span + 16 * int(rng.integers(3))) // 32) * 32)
        span = strides[-1] * n
    steps = [one_in(rng, 1, 1, 2, 3) for _ in range(rank)]
    line = int(rng.integers(1, (swizzle or 128) // 16 + 1)) * 16 // size
    fill = one_in(rng, "zero", "nan") if TYPES[type_].floating else "zero"
    how = (steps, interleave, swizzle, 0, fill)
    try:
        if rank >= 3 and rng.random() < 0.4:
            lower, upper = ([int(n) for n in rng.integers(-3, 2, rank - 2)] for _ in range(2))
            pixels = int(rng.integers(1, 40))
            return TensorMap.im2col(0, type_, shape, strides, lower, upper, line, pixels, *how)
        box = [line, *(int(n) for n in rng.integers(1, 9, rank - 1))]
        return TensorMap.tiled(0, type_, shape, strides, box, *how)
    except LayoutError:
        return None


def random_case(rng):
    """(map, memory, coordinates, offsets, whether it stores, bytes of the copy)."""
    while True:
        m = random_map(rng)
        if m is None:
            continue
        stores = bool(rng.random() < 0.4)
        c = [int(n) for n in rng.integers(0 if stores else -4, 30, m.rank)]
        whole = max(1, 16 // m.element_bytes)
        c[0] = c[0] if m.interleave else c[0] // whole * whole
        walks = isinstance(m.box, Im2col) and not stores
        offsets = rng.integers(0, 4, m.rank - 2).tolist() if walks else []
        try:
            result = copy_addresses(m, c, offsets, 0, stores)
        except LayoutError:
            continue
        if result.shared.max(initial=0) + result.unit <= SIZE:
            spans = [(n - 1) * s for n, s in zip(m.shape[1:], m.strides, strict=True)]
            first = m.shape[0] * (m.interleave or m.element_bytes)
            memory = rng.integers(0, 256, sum(spans) + first + 64, dtype=np.uint8)
            return m, memory, c, offsets, stores, result.bytes


@every_row("seed", range(240), parts=27)
def test_copies_match_the_specification(seed):
    rng = np.random.default_rng(seed)
    m, memory, c, offsets, stores, bytes_ = random_case(rng)
    shared, outside = GIVEN.copy(), memory.copy()
    if stores:
        store(m, outside, shared, c)
    else:
        load(m, outside, shared, c, offsets)
    result = run(m, memory, c, offsets, stores, Machine(seed=seed % 3), bytes_=bytes_)
    np.testing.assert_array_equal(result[0], shared)
    np.testing.assert_array_equal(result[1], outside)


MASK = "mov.b16 %h1, 2;"
MATRIX = TensorMap.tiled(0, "f16", (64, 32), (128,), (64, 8), swizzle=128)


@pytest.mark.slow
def test_stepped_copies_match_too():
    memory = np.arange(4096, dtype=np.uint16).view(np.uint8)
    m = TensorMap.tiled(0, "f16", (64, 32), (128,), (16, 2), swizzle=32)
    result = [
        run(m, memory, [16, 31], [], False, Machine(), on_step, 64)
        for on_step in (None, lambda step: None)
    ]
    np.testing.assert_array_equal(result[0][0], result[1][0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("tensor.2d", "tensor.3d").replace("{0, 0}", "{0, 0, 0}"),
         "another rank than the instruction"),
        (lambda text: text.replace("{0, 0}", "{4, 0}"), "must be at a multiple of 16 bytes"),
        (lambda text: text.replace("mov.b64 %rd1, %a1", "add.u64 %rd1, %a0, 64"), "no tensor map"),
        (lambda text: text.replace("mov.b64 %rd1, %a1", "add.u64 %rd1, %a1, 8"), "misaligned"),
        (lambda text: text.replace("[%buf], [%rd1", "[%buf+64], [%rd1"), "misaligned"),
        (lambda text: text.replace("[%buf], [%rd1", "[%buf+65024], [%rd1"), "out of bounds"),
        (lambda text: text.replace("::bytes\n", "::bytes.multicast::cluster\n")
         .replace("[%bar];\nW", "[%bar], %h1;\nW").replace("%bar, bar;", "%bar, bar; " + MASK),
         "no CTA of that rank"),
    ],
)  # fmt: skip
def test_what_faults_on_hardware_is_a_fault(change, message):
    machine = Machine()
    there = machine.upload(np.zeros(4096, np.uint8))
    placed = TensorMap.replace_address(MATRIX.encode(), there)
    text = change(kernel(MATRIX, [0, 0], [], False, 1024))
    with pytest.raises(VmFault) as caught:
        simt.launch(machine, text, [GIVEN, np.frombuffer(placed, np.uint8)], block=1)
    assert message in str(caught.value)


def test_a_tensor_larger_than_its_memory_is_out_of_bounds():
    machine = Machine()
    there = machine.upload(np.zeros(4096 - 256, np.uint8))
    placed = TensorMap.replace_address(MATRIX.encode(), there)
    text = kernel(MATRIX, [0, 24], [], False, 1024)
    with pytest.raises(VmFault, match="out of bounds"):
        simt.launch(machine, text, [GIVEN, np.frombuffer(placed, np.uint8)], block=1)
