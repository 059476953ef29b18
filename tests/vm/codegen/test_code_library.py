"""Compiled code: the same bits with any vector instructions and any cores; kept between runs."""

from __future__ import annotations

import gc
import itertools
import mmap
import weakref
from pathlib import Path

import numpy as np
import pytest

from ptx_kernels.simt import both, kernel, launch, load, store, zeros
from tilewright import compile_cache, mma
from tilewright.errors import VmFault
from tilewright.vm import Machine

pytestmark = pytest.mark.vm

PTX = Path(__file__).parents[2] / "data" / "ptx"
FEATURES = {
    "avx512": "+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx512cd,+avx2,+fma",
    "avx2": "-avx512f,+avx2,+fma",
    "sse2": "-avx,-fma",
}
RNG = np.random.default_rng(9)

ARITHMETIC = kernel(f"""
  {load("%f0", "f32")} {load("%f1", "f32", "%a2")} fma.rn.f32 %f2, %f0, %f1, %f0;
  div.rn.f32 %f3, %f2, %f1; sqrt.rn.f32 %f4, %f3; cvt.rn.f16.f32 %h0, %f4; cvt.f32.f16 %f5, %h0;
  cvt.f64.f32 %fd0, %f2; fma.rm.f64 %fd1, %fd0, %fd0, %fd0; cvt.rn.f32.f64 %f6, %fd1;
  mov.b32 %r2, %f6; mov.b32 %r3, %f5; xor.b32 %r4, %r2, %r3; mul.hi.s32 %r5, %r4, %r2;
  redux.sync.xor.b32 %r6, %r5, -1; add.u32 %r4, %r4, %r6; {store("%r4")}""")


def tile() -> tuple[str, list[np.ndarray]]:
    """Loads of fragments, one mma in each warp, stores."""
    row = mma.instruction("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32")
    text = kernel(f"""
      mad.wide.u32 %rd1, %g, 16, %a1; mad.wide.u32 %rd2, %g, 8, %a2; mad.wide.u32 %rd0, %g, 16, %a0;
      ld.global.v4.b32 {{%r2, %r3, %r4, %r5}}, [%rd1]; ld.global.v2.b32 {{%r6, %r7}}, [%rd2];
      mov.f32 %f0, 0f00000000; mov.f32 %f1, 0f3F800000; mov.f32 %f2, 0fBF800000; mov.f32 %f3, %f0;
      {row.opcode} {{%f4, %f5, %f6, %f7}}, {{%r2, %r3, %r4, %r5}}, {{%r6, %r7}},
        {{%f0, %f1, %f2, %f3}};
      st.global.v4.f32 [%rd0], {{%f4, %f5, %f6, %f7}};""")
    bits = [RNG.integers(0, 2**32, n * 256, np.uint32) for n in (4, 2)]
    return text, [np.zeros(4 * 256, np.uint32), *bits]


def floats() -> list[np.ndarray]:
    """Any bits, and some floats near each other."""
    given = RNG.integers(0, 2**32, (2, 256), np.uint32).view(np.float32)
    given[:, ::2] = RNG.standard_normal((2, 128))
    return [zeros(256), *given]


CASES = {"arithmetic": (ARITHMETIC, floats()), "mma": tile()}


@pytest.mark.parametrize("case", CASES)
def test_results_do_not_depend_on_vector_width_or_cores(case):
    text, buffers = CASES[case]
    expected = both(text, buffers, grid=4, block=64)[0].tobytes()
    supported = [f for n, f in FEATURES.items() if n != "avx512" or _has_avx512()]
    for features in supported:
        for threads in (1, 2):
            machine = Machine(features=features, threads=threads)
            out, *_ = launch(machine, text, buffers, grid=4, block=64)
            assert out.tobytes() == expected, (features, threads)


def _has_avx512() -> bool:
    return all(f"+{w}" in Machine().library.jit.features for w in ("avx512f", "avx512vl"))


# --- the store ------------------------------------------------------------------------------------


class Store:
    """A store in memory that counts."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], bytes] = {}
        self.puts = 0

    def get(self, kind: str, key: str) -> bytes | None:
        return self.kept.get((kind, key))

    def put(self, kind: str, key: str, value: bytes) -> None:
        self.kept[kind, key] = value
        self.puts += 1


def fresh(kept: dict) -> Store:
    """Another store with the same contents, as a new process would find them."""
    store = Store()
    store.kept = dict(kept)
    return store


def multiply(store: Store) -> bytes:
    text, buffers = CASES["mma"]
    return launch(Machine(store=store), text, buffers, grid=4, block=64)[0].tobytes()


def entries(store: Store) -> int:
    """How many a kernel with one matrix instruction has: the list of the engine's parts, those that
    it needs, its metadata, the instruction, its region.
    """
    return 1 + len(Machine(store=store).library.loaded) + 3


def test_store_defaults_to_the_users_cache():
    assert Machine().store is Machine().library.store is compile_cache.store()
    assert Machine(store=False).library.store is None
    kept = Store()
    assert Machine(store=kept).library.store is kept


def test_compiled_code_is_stored():
    store = Store()
    first = multiply(store)
    assert store.puts == entries(store)
    assert multiply(store) == first and store.puts == entries(store)
    again = fresh(store.kept)
    assert multiply(again) == first and again.puts == 0


DAMAGES = (
    lambda b: b[: len(b) // 2],
    lambda b: b[: len(b) // 2] + bytes([b[len(b) // 2] ^ 1]) + b[len(b) // 2 + 1 :],
    lambda b: b"\x7fELF" * 100,
    lambda b: b"",
)  # cut, flipped, another, empty


def test_damaged_entries_are_recompiled():
    store = Store()
    first = multiply(store)
    damaged = zip(store.kept.items(), itertools.cycle(DAMAGES))
    again = fresh({key: damage(value) for (key, value), damage in damaged})
    assert multiply(again) == first
    assert again.puts == entries(store) and again.kept == store.kept


FIRST = f"""st.global.u32 [%a1], %t; {store("%t")}"""
NAMED = f"""mov.u64 %rd1, table; ld.global.u32 %r2, [%rd1]; {store("%r2")}"""
TABLE = ".global .align 4 .u32 table[2] = {7, 8}; .global .align 4 .u32 other = 9;"


def test_stored_kernel_runs_without_program_and_locates_faults():
    """Neither checked nor built, until a fault wants to say where it was."""
    kept, text = Store(), kernel(FIRST)
    launch(Machine(store=kept), text, [zeros(), zeros(1)])
    machine = Machine(store=fresh(kept.kept))
    out = launch(machine, text, [zeros(), zeros(1)])[0]
    assert out.tolist() == list(range(32)) and machine.store.puts == 0
    assert "program" not in vars(machine.kernels["k"])
    with pytest.raises(VmFault, match="out of bounds") as caught:
        machine.launch("k", 1, 32, [machine.upload(zeros()), *[0] * 9])
    assert "st.global.u32" in text.splitlines()[caught.value.location.line - 1]


def test_cache_key_ignores_unreferenced_variables():
    kept = Store()
    for body, more in ((FIRST, 0), (NAMED, 2)):  # metadata and a region are compiled once, or again
        text = kernel(body, top=TABLE)
        launch(Machine(store=kept), text, [zeros(), zeros(1)])
        again = fresh(kept.kept)
        machine = Machine(store=again)
        machine.alloc(1 << 20)
        out = launch(machine, text, [zeros(), zeros(1)])[0]
        assert again.puts == more
        assert out.tolist() == (list(range(32)) if body is FIRST else [7] * 32)


def test_code_is_shared_between_machines_and_unloaded_when_unused():
    gc.freeze()  # a collection visits what is made here, not all that earlier tests left
    machine, text = Machine(), kernel(f"add.u32 %r2, %t, 12345; {store('%r2')}")
    library = machine.library
    before = set(library.functions)
    launch(machine, text, [zeros()])
    (key,) = set(library.functions) - before
    code = weakref.ref(library.functions[key])
    other = Machine()
    launch(other, text, [zeros()])
    library.recent.clear()
    del machine
    gc.collect()
    assert library.functions[key] is code()
    out = zeros()
    other.launch("k", 1, 32, [out, *[0] * 9])
    assert out.tolist() == list(range(12345, 12377))
    del other
    gc.collect()
    assert code() is None and key not in library.functions


def test_code_and_constants_may_be_far_apart_in_memory():
    """Large reservations between one kernel's code and the next's."""
    held = []
    for number in range(4):
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
        held.append(mmap.mmap(-1, 5 << 30, flags=flags))
        text = kernel(
            f"{load('%f0', 'f32')} div.rn.f32 %f1, %f0, {number + 3}.0; {store('%f1', 'f32')}"
        )
        out, _ = launch(Machine(), text, [np.zeros(32, np.float32), np.ones(32, np.float32)])
        assert set(out) == {np.float32(1) / np.float32(number + 3)}


# --- what a compiler makes ------------------------------------------------------------------------


def test_a_debug_build_of_a_tiled_sgemm():
    n = 40
    a, b = RNG.standard_normal((2, n, n), np.float32)
    outs = []
    for on_step, size in ((None, n), (None, 20), (lambda s: None, 20)):
        machine = Machine()
        machine.load((PTX / "sgemm.ptx").read_text())
        x, y = (np.ascontiguousarray(m[:size, :size]) for m in (a, b))
        places = [machine.upload(m) for m in (x, y, np.zeros_like(x))]
        grid = -(-size // 16)
        machine.launch("sgemm", (grid, grid), (16, 16), [*places, size], on_step=on_step)
        outs.append(machine.download(places[2], x))
        np.testing.assert_allclose(outs[-1], x @ y, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(outs[1], outs[2])


def test_shuffles_copies_and_matrices_as_nvcc_writes_them():
    text = (PTX / "warp.ptx").read_text()
    given = RNG.integers(0, 2**14, (128, 4), np.int32)
    outs = []
    for on_step in (None, lambda s: None):
        machine = Machine()
        name = machine.load(text).entries[0].name
        buffers = [given, zeros(1), zeros(128), np.zeros(512, np.float32)]
        places = [machine.upload(b) for b in buffers]
        machine.launch(name, 1, 128, places, on_step=on_step)
        outs.append([machine.download(p, b) for p, b in zip(places, buffers, strict=True)])
    for one, other in zip(*outs, strict=True):
        assert one.tobytes() == other.tobytes()
    assert outs[0][1] == given[:, :2].sum(dtype=np.uint32) * 32
    half = given[np.arange(128) ^ 1, 2:].astype(np.float16)
    expected = half.astype(np.float64) ** 2 + half
    with np.errstate(over="ignore"):
        assert outs[0][2].tobytes() == expected.astype(np.float16).tobytes()
