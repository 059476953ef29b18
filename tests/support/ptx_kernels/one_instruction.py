"""Kernels of one matrix instruction: load the fragments, run it, store the result.

``Case`` is one instruction with what else its operands take (selectors, wgmma's descriptors,
transposes, signs); it has the PTX, makes what a launch reads from tiles, and reads what it wrote.
Each CTA does a tile: its words lie together, word by word, the threads of a word side by side.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from references import hostile
from tilewright import mma
from tilewright.bit_packing import pack
from tilewright.dtypes import dtype
from tilewright.mma import MatrixDescriptor, MmaInstruction
from tilewright.ptx.rules.requirements import lowest_target
from tilewright.target import Target

SHARED = 1024  # where the shared array begins on the hardware
BYTES = 32768  # of shared memory that a wgmma's operands stand in

HEAD = """.version {version}
.target {target}
.address_size 64
.visible .entry one(.param .u64 given, .param .u64 made)
{{
.reg .pred %p, %scale_d;
.reg .b32 %x, %y, %s, %lo, %hi, %w<4>;
.reg .b64 %in, %out, %t;
{registers}
ld.param.u64 %in, [given];
ld.param.u64 %out, [made];
cvta.to.global.u64 %in, %in;
cvta.to.global.u64 %out, %out;
mov.u32 %x, %ctaid.x;
mul.wide.u32 %t, %x, {given};
add.u64 %in, %in, %t;
mul.wide.u32 %t, %x, {made};
add.u64 %out, %out, %t;
mov.u32 %x, %tid.x;
shl.b32 %x, %x, 2;
cvt.u64.u32 %t, %x;
add.u64 %out, %out, %t;
"""

FILL = """.shared .align 1024 .b8 sm[{bytes}];
ld.global.v2.b32 {{%lo, %hi}}, [%in];
mov.b64 %da, {{%lo, %hi}};
ld.global.v2.b32 {{%lo, %hi}}, [%in+8];
mov.b64 %db, {{%lo, %hi}};
ld.global.b32 %y, [%in+16];
setp.ne.b32 %scale_d, %y, 0;
mov.u32 %s, sm;
shl.b32 %y, %x, 2;
add.u32 %s, %s, %y;
cvt.u64.u32 %da2, %y;
add.u64 %da2, %da2, %in;
mov.u32 %y, 0;
FILL:
ld.global.v4.b32 {{%w0, %w1, %w2, %w3}}, [%da2+64];
st.shared.v4.b32 [%s], {{%w0, %w1, %w2, %w3}};
add.u64 %da2, %da2, 2048;
add.u32 %s, %s, 2048;
add.u32 %y, %y, 1;
setp.lt.u32 %p, %y, {times};
@%p bra FILL;
add.u64 %in, %in, {past};
"""


@dataclass(frozen=True)
class Case:
    """One instruction and what else its operands say."""

    i: MmaInstruction
    selectors: tuple[int, ...] = ()
    registers: bool = False  # wgmma: A from registers
    transposed: tuple[int, int] = (0, 0)
    signs: tuple[int, int] = (1, 1)

    def __str__(self) -> str:
        more = ["RS"] if self.registers else []
        more += [f"sel{self.selectors}"] * any(self.selectors)
        more += [f"t{self.transposed}"] * any(self.transposed) + [f"{self.signs}"] * (
            self.signs != (1, 1)
        )
        return " ".join([self.i.opcode, *more])

    @property
    def threads(self) -> int:
        return 128 if self.i.asynchronous else 32

    @cached_property
    def loaded(self) -> list[str]:
        """The operands that come in registers, in the order of memory."""
        names = [n for n in self.i.operands if n != "d"]
        if self.i.asynchronous:
            names = [n for n in names if n != "b" and (n != "a" or self.registers)]
        return names

    def _names(self, name: str) -> list[str]:
        f = self.i.fragment(name)
        return [f"%{name}_{n}" for n in range(f.count)]

    def _type(self, name: str) -> str:
        """Of its registers, as the row asks for it."""
        f = self.i.fragment(name)
        plain = f.bits == f.word and f.type != "tf32"
        return f.type if plain else "b32"

    @cached_property
    def given_words(self) -> int:
        """32-bit words that each tile reads."""
        held = sum(self._words(n) for n in self.loaded) * self.threads
        return held + (16 + BYTES // 4 if self.i.asynchronous else 0)

    @cached_property
    def made_words(self) -> int:
        return self._words("d") * self.threads

    def _words(self, name: str) -> int:
        f = self.i.fragment(name)
        return f.count * f.word // 32

    # --- the kernel ---

    @cached_property
    def ptx(self) -> str:
        versions, targets = zip(*self.i.needs, strict=True)
        version, target = lowest_target({("6.0", "sm_70"), ("|".join(versions), "|".join(targets))})
        if not self.i.until and Target.parse("sm_90a").runs(target):
            target, version = Target.parse("sm_90a"), max(version, (8, 0))
        fields = {
            "version": f"{version[0]}.{version[1]}", "target": target.name,
            "registers": "\n".join(self._declared()),
            "given": 4 * self.given_words, "made": 4 * self.made_words,
        }  # fmt: skip
        body = HEAD.format(**fields)
        if self.i.asynchronous:
            body += FILL.format(bytes=BYTES, times=BYTES // 2048, past=64 + BYTES)
        body += "add.u64 %in, %in, %t;\n"
        body += "\n".join([*self._loads(), *self._instruction(), *self._stores(), "ret;", "}", ""])
        return body

    def _declared(self) -> list[str]:
        used = dict.fromkeys([*self.loaded, "d"])
        made = [f".reg .{self._type(n)} {', '.join(self._names(n))};" for n in used]
        return [*made, ".reg .b64 %da, %db, %da2;"]

    def _loads(self) -> list[str]:
        made, at = [], 0
        for name in self.loaded:
            type_ = self._type(name)
            for register in self._names(name):
                made += _move(type_, register, at, self.threads, load=True)
                at += 4 * self.threads * (2 if type_ == "f64" else 1)
        return made

    def _stores(self) -> list[str]:
        made, at = [], 0
        for register in self._names("d"):
            made += _move(self._type("d"), register, at, self.threads, load=False)
            at += 4 * self.threads * (2 if self._type("d") == "f64" else 1)
        return made

    def _vector(self, name: str) -> str:
        return "{" + ", ".join(self._names(name)) + "}"

    def _instruction(self) -> list[str]:
        i = self.i
        if i.asynchronous:
            return self._warpgroup()
        parts = [self._vector(n) for n in "dabc"]
        if i.sparse:
            parts += [*self._names("metadata"), str((self.selectors or (0,))[0])]
        if i.stype:
            ids = (self.selectors or (0,) * 5)[-4:]
            for side, (byte, thread) in zip("ab", (ids[:2], ids[2:]), strict=True):
                parts += [*self._names(f"scale_{side}"), f"{{{byte}, {thread}}}"]
        return [f"{i.opcode} {', '.join(parts)};"]

    def _warpgroup(self) -> list[str]:
        i = self.i
        copies = zip(self._names("d"), self._names("c"), strict=True)
        made = [f"mov.b32 {d}, {c};" for d, c in copies]
        parts = [self._vector("d"), self._vector("a") if self.registers else "%da", "%db"]
        if i.sparse:
            parts += [*self._names("metadata"), str((self.selectors or (0,))[0])]
        parts.append("%scale_d")
        if dtype(i.a).kind == "float":
            parts += map(str, self.signs)
        if i.a in ("f16", "bf16"):
            parts += map(str, self.transposed[1:] if self.registers else self.transposed)
        return [
            *made, "fence.proxy.async.shared::cta;", "bar.sync 0;", "wgmma.fence.sync.aligned;",
            f"{i.opcode} {', '.join(parts)};",
            "wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;",
        ]  # fmt: skip

    # --- what goes in and comes out ---

    def tiles(self, kind: str, count: int, seed: int = 0) -> Tiles:
        if self.i.asynchronous:
            return self._shared_tiles(kind, count, seed)
        a, b, c = hostile.tiles(self.i, kind, count, seed)
        return Tiles(self, a, b, c, hostile.extras(self.i, count, seed))

    def _shared_tiles(self, kind: str, count: int, seed: int) -> Tiles:
        """Random descriptors into random shared memory; A and B are what they find there."""
        i, rng = self.i, hostile.Stream("shared", seed, kind, str(self))
        a, b, c = hostile.tiles(i, kind, count, seed)
        pool = [pack(t, x.reshape(count, -1), np.uint32) for t, x in ((i.a, a), (i.b, b))]
        both = np.concatenate(pool, -1)
        pick = rng.integers(0, both.shape[-1], (count, BYTES // 4))
        shared = np.take_along_axis(both, pick, -1)
        places = [(self.descriptor(rng, 0), self.descriptor(rng, 1)) for _ in range(count)]
        if not self.registers:
            a = np.stack([self._found(m, d[0], 0) for m, d in zip(shared, places, strict=True)])
        b = np.stack([self._found(m, d[1], 1).T for m, d in zip(shared, places, strict=True)])
        head = np.zeros((count, 16), np.uint32)
        for n, (da, db) in enumerate(places):
            head[n, :4] = np.array([da.bits, db.bits], np.uint64).view(np.uint32)
        head[:, 4] = rng.random(count) < 0.8
        return Tiles(self, a, b, c, hostile.extras(i, count, seed), head, shared)

    def descriptor(self, rng: hostile.Stream, side: int) -> MatrixDescriptor:
        """Any swizzle, strides and base offset, within the shared array."""
        i, turned = self.i, self.transposed[side]
        swizzle = int(rng.choice(np.array([0, 32, 64, 128]), ()))
        start = SHARED + (1024 if swizzle else 16) * int(rng.integers(0, 4, ()))
        offset = int(rng.integers(0, 8, ())) if swizzle and rng.random(()) < 0.3 else 0
        start += 128 * offset + (32 if swizzle > 32 and rng.random(()) < 0.3 else 0)
        rows = i.n if side else i.m
        steps = (rows * 16 // max(swizzle, 16) if turned and swizzle else rows // 8) + 4
        far = max(2, 24000 // steps // 16)
        leading, stride = (16 * int(x) for x in rng.integers(1, min(far, 64), 2))
        if swizzle and rng.random(()) < 0.5 and 8 * swizzle * steps < 24000:
            leading, stride = 8 * swizzle, 8 * swizzle
        return MatrixDescriptor(start, leading, stride, swizzle, offset)

    def _found(self, words: np.ndarray, where: MatrixDescriptor, side: int) -> np.ndarray:
        i = self.i
        bits = dtype(i.b if side else i.a).bits
        shape = (i.n, i.k) if side else (i.m, i.stored_k)
        major = "MN" if self.transposed[side] else "K"
        return gather(words, where.addresses(bits, *shape, major) - 8 * SHARED, bits)


@dataclass(frozen=True)
class Tiles:
    """Operands for a launch: what it reads, and what D must be."""

    case: Case
    a: np.ndarray
    b: np.ndarray
    c: np.ndarray
    extras: dict[str, np.ndarray]
    head: np.ndarray | None = None
    shared: np.ndarray | None = None

    def words(self) -> np.ndarray:
        """(tiles, words) of uint32."""
        i = self.case.i
        held = {"a": self.a, "b": self.b, "c": self.c, **self.extras}
        parts = [] if self.head is None else [self.head, self.shared]
        for name in self.case.loaded:
            x = i.fragment(name).registers(held[name])
            if x.dtype.itemsize == 8:
                x = x.view(np.uint32).reshape(*x.shape, 2)
            else:
                x = x[..., None]
            parts.append(np.moveaxis(x, 1, -1).reshape(len(x), -1))
        return np.ascontiguousarray(np.concatenate(parts, -1))

    def expected(self) -> np.ndarray:
        """D (tiles, M, N) as bits, by ``tilewright.mma``."""
        i = self.case.i
        a, b, c = self.a, self.b, self.c
        signs = self.case.signs
        a, b = (
            x ^ x.dtype.type(1 << (dtype(t).bits - 1)) if s < 0 else x
            for x, t, s in ((a, i.a, signs[0]), (b, i.b, signs[1]))
        )
        if self.head is not None:
            c = np.where(self.head[:, 4].astype(bool)[:, None, None], c, c.dtype.type(0))
        return i(a, b, c, **self.extras)

    def read(self, made: np.ndarray) -> np.ndarray:
        """D from the words that the kernel wrote, (tiles, words)."""
        f = self.case.i.fragment("d")
        x = made.reshape(len(made), f.count, f.word // 32, self.case.threads)
        x = np.ascontiguousarray(np.moveaxis(x, -1, 1))
        return f.matrix(x.view(f"u{f.word // 8}").reshape(len(made), self.case.threads, f.count))


def gather(words: np.ndarray, bit: np.ndarray, size: int) -> np.ndarray:
    """Elements of ``size`` bits at these bit addresses."""
    raw = np.ascontiguousarray(words).view(np.uint8)
    if size == 1:
        return raw[bit >> 3] >> (bit & 7).astype(np.uint8) & 1
    made = np.zeros(bit.shape, np.uint64)
    for n in range(size // 8):
        made |= raw[(bit >> 3) + n].astype(np.uint64) << np.uint64(8 * n)
    return made.astype(f"u{size // 8}")


def _move(type_: str, register: str, at: int, threads: int, load: bool) -> list[str]:
    if type_ != "f64":
        kind = "f32" if type_ == "f32" else "b32"
        if load:
            return [f"ld.global.{kind} {register}, [%in+{at}];"]
        return [f"st.global.{kind} [%out+{at}], {register};"]
    halves = (f"[%in+{at}]", f"[%in+{at + 4 * threads}]")
    if load:
        pair = [f"ld.global.b32 {r}, {p};" for r, p in zip(("%lo", "%hi"), halves, strict=True)]
        return [*pair, f"mov.b64 {register}, {{%lo, %hi}};"]
    halves = (f"[%out+{at}]", f"[%out+{at + 4 * threads}]")
    pair = [f"st.global.b32 {p}, {r};" for r, p in zip(("%lo", "%hi"), halves, strict=True)]
    return [f"mov.b64 {{%lo, %hi}}, {register};", *pair]


def cases(i: MmaInstruction) -> list[Case]:
    """The variants of an instruction: every selector, and of wgmma operands' places and signs."""
    if not i.asynchronous:
        if not i.selector_values():
            return [Case(i)]
        values = list(i.selector_values().values())
        ends = [tuple(v[n % len(v)] for v in values) for n in range(max(map(len, values)))]
        return [Case(i, selectors) for selectors in dict.fromkeys(ends)]
    made = [Case(i), Case(i, registers=True)]
    if i.a in ("f16", "bf16"):
        made += [Case(i, transposed=t) for t in ((0, 1), (1, 0), (1, 1))]
        made += [Case(i, registers=True, transposed=(0, 1))]
    if dtype(i.a).kind == "float":
        made += [Case(i, signs=(-1, 1)), Case(i, registers=True, signs=(1, -1))]
    if i.sparse:
        more = i.selector_values()["selector"][1:]
        made += [Case(i, (s,), registers=bool(s % 2)) for s in more]
    return made


def every(pattern: str = "") -> list[Case]:
    """Every case of every instruction whose opcode matches."""
    return [c for i in mma.ROWS if re.search(pattern, i.opcode) for c in cases(i)]
