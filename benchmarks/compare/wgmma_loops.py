"""Loops of wgmma with A from registers, with conversions or other instructions, without copies."""

from __future__ import annotations

import re
from math import lcm
from typing import Any, NamedTuple

import torch

import tilewright
from tilewright.builder.tensors.wgmma_fragments import descriptor_start
from tilewright.gemm.tma.tma_operand import TmaOperand
from tilewright.quantization.conversions import fastest

WARPGROUP, FRAGMENT, WORD, VECTOR = 128, 4, 4, 16
DEPTH = 128  # of the stage of X
STEPS = DEPTH // 16
ROUNDS = 64  # of a loop of 16 steps
WORD_BLOCK = WARPGROUP * VECTOR  # bytes of the words of four steps
WORD_BYTES = 4 * WORD_BLOCK  # of a warpgroup
ROOM = 120 << 10  # so that an SM has one CTA
TURN = 64  # instructions of a turn of the other warpgroups' loop
REGISTERS = 8  # that they change in turn
TURN_BARRIER = 8
END = 15  # barrier
KINDS = ("lop", "ffma", "hfma", "shf", "lds")


class Loop(NamedTuple):
    """A loop of wgmma; the words of the table."""

    text: str
    n: int
    warpgroups: int
    chunk: int
    group: int
    sets: int
    parts: int
    conversion: str  # u4, reg, scaled, none, or a kind of instructions
    extra: int  # of them for a step
    options: frozenset[str]

    @classmethod
    def parse(cls, text: str) -> Loop:
        numbers = {"n": 64, "w": 3, "c": 4, "g": 8, "s": 2, "p": 1}
        conversion, extra, options = "u4", 0, set()
        for word in text.split():
            kind, number = re.fullmatch(r"(\D+)(\d*)", word).groups() if word != "f16" else ("", "")
            if word in ("u4", "reg", "scaled", "none"):
                conversion = word
            elif kind in KINDS:
                conversion, extra = kind, int(number)
            elif kind in numbers and number:
                numbers[kind] = int(number)
            elif word in ("kept", "early", "ahead", "ss", "f16", "turns"):
                options.add(word)
            else:
                raise ValueError(f"{word!r} in {text!r} is not a word of a loop")
        return cls(text, *numbers.values(), conversion, extra, frozenset(options))

    @property
    def type(self) -> str:
        return "f16" if "f16" in self.options else "bf16"

    @property
    def body(self) -> int:
        """Steps of the unrolled body."""
        return lcm(16, self.chunk * self.sets, (self.group or 1) * self.parts)

    @property
    def rounds(self) -> int:
        return ROUNDS * 16 // self.body


class LoopKernel:
    """The kernel of a loop, and of ``others``: warpgroups that execute instructions ``kind``."""

    def __init__(self, loop: Loop, kind: str = "", others: int = 0) -> None:
        self.loop, self.kind, self.others = loop, kind, others
        self.threads = WARPGROUP * (loop.warpgroups + others)
        self.right = TmaOperand(loop.type, loop.n, DEPTH, "k")
        params = {"out": "ptr b64", "rounds": "u32", "least": "u32"}

        def mixed_loop(k: Any, out: Any, rounds: Any, least: Any) -> None:
            LoopBody(k, self, out, rounds, least).emit()

        self.kernel = tilewright.kernel(mixed_loop, params=params, block=self.threads)

    def run(self, rounds: int, concurrent: bool) -> list[Any]:
        """The medians over SMs of [cycles of the loop, of another warpgroup's instruction]."""
        sms = torch.cuda.get_device_properties(0).multi_processor_count
        out = torch.zeros((sms, 8, 4), dtype=torch.int64, device="cuda")
        least = 0 if not concurrent else (1 << 31) if not rounds else 1
        for _ in range(3):
            self.kernel[sms](out, rounds, least)
        torch.cuda.synchronize()
        values = out.cpu().double()
        w = self.loop.warpgroups
        first = values[:, :w, 0].min(1).values
        cycles = values[:, :w, 1].max(1).values - first
        found = [float(cycles.median())]
        if self.others:
            of_others = values[:, w : w + self.others]
            spent = (of_others[..., 1] - of_others[..., 0]).mean(1)
            count = of_others[..., 2].sum(1) * TURN
            found.append(float((spent / count.clamp(min=1)).median()))
        return found


class LoopBody:
    """Emits the kernel."""

    def __init__(self, k: Any, kernel: LoopKernel, out: Any, rounds: Any, least: Any) -> None:
        self.k, self.kernel, self.loop, self.right = k, kernel, kernel.loop, kernel.right
        self.out, self.rounds, self.least = out, rounds, least
        self.recipe = fastest("u4", self.loop.type)

    def emit(self) -> None:
        k, loop = self.k, self.loop
        x = k.dynamic_shared(self.right.bytes, 1024)
        left = TmaOperand(loop.type, 64, DEPTH, "k")  # of all warpgroups, the bytes of X
        self.left = descriptor_start(x.address()) | left.descriptor_bits(64)
        words = k.dynamic_shared(loop.warpgroups * WORD_BYTES, 128)
        self.flag = k.dynamic_shared(WORD, 4, dtype="u32")
        k.dynamic_shared(ROOM - self.right.bytes - loop.warpgroups * WORD_BYTES, 128)
        for target, size, value in (
            (x, self.right.bytes, 0x3C003C00), (words, loop.warpgroups * WORD_BYTES, 0x12345678),
        ):  # fmt: skip
            target = target.cast("b32")
            for i in k.range(k.tid.x, size // WORD, self.kernel.threads, unroll=False):
                target[i] = value
        with k.when(k.tid.x == 0):
            self.flag.store(0)
        k.fence_async()
        k.barrier()
        self.descriptor = descriptor_start(x.address()) | self.right.descriptor_bits(loop.n, 32)
        thread = k.tid.x & (WARPGROUP - 1)
        self.warpgroup = k.shfl("idx", k.tid.x >> 7, 0)
        self.words = words.address() + self.warpgroup * WORD_BYTES + thread * VECTOR
        self.never = self.words > (1 << 30)
        if not self.kernel.others:
            self._multiply()
            return
        with k.if_(self.warpgroup < loop.warpgroups):
            self._multiply()
        with k.else_():
            self._execute_until_flag()

    def _report(self, start: Any, end: Any, count: Any) -> None:
        k = self.k
        with k.when(k.tid.x & (WARPGROUP - 1) == 0):
            at = (k.ctaid.x * 8 + self.warpgroup) * 4
            for i, value in enumerate((start, end, count)):
                self.out[at + i] = value

    # --- the loop ---------------------------------------------------------------------------------

    def _multiply(self) -> None:
        k, loop = self.k, self.loop
        kind = "f32"
        self.parts = [list(k.array(kind, loop.n // 2)) for _ in range(loop.parts)]
        self.totals = list(k.array(kind, loop.n // 2)) if loop.group else []
        for x in (*self.totals, *([] if loop.group else self.parts[0])):
            x.set(0.0)
        self.fragments = [k.array("b32", FRAGMENT * loop.chunk) for _ in range(loop.sets)]
        self.extra = [k.var("b32", k.tid.x + i) for i in range(REGISTERS)]
        self.scales = [k.var("f32", (k.tid.x + i).to("f32")) for i in range(2)]
        self.pairs = [k.var("b32", (k.tid.x + i) * 0x10001) for i in range(4)]
        self.held = [k.var("b32", k.tid.x + i) for i in range(4)]
        self.vectors = [[k.var("b32", 0) for _ in range(4)] for _ in range(2)]
        for of_set in self.fragments:
            for i, x in enumerate(of_set):
                x.set(k.tid.x + i)
        start = k.var("u64", 0)
        k.emit("bar.sync", END, WARPGROUP * loop.warpgroups)
        k.mov(k.special("clock64"), into=start)
        if "turns" in loop.options:
            self._begin_turns()
        self._load(0)
        self._convert(0)
        self.per_group = max(1, loop.group // loop.chunk)
        ahead = self.per_group if loop.parts > 1 else 0  # else ptxas serializes wgmma (C7514)
        self._chunks(0, ahead)
        for _ in k.range(0, self.rounds, unroll=False):
            self._chunks(ahead, loop.body // loop.chunk)
        if ahead:
            with k.if_(self.never):
                self._chunks(ahead, ahead)
                k.wgmma_wait(0)
                self._promote(self.parts[1])
            with k.else_():
                k.wgmma_wait(0)
                self._promote(self.parts[0])
        else:
            k.wgmma_wait(0)
        end = k.special("clock64")
        if "turns" in loop.options:
            self._end_turns()
        k.emit("bar.sync", END, WARPGROUP * loop.warpgroups)
        if self.kernel.others:
            with k.if_(self.rounds == 0):
                for _ in k.range(0, 1000, unroll=False):
                    k.emit("nanosleep.u32", 20)
        with k.when(k.tid.x == 0):
            self.flag.store(1, order="volatile")
        self._report(start, end, self.rounds.to("u64"))
        with k.when(self.never):
            kept = [*self.extra, *self.totals, *([] if ahead else self.parts[0])]
            for x in kept:
                k.pointer("shared", "b32", self.words).store(x.view("b32"), order="volatile")

    def _chunks(self, first: int, count: int) -> None:
        """The chunks from ``first`` on, of the body again and again."""
        k, loop = self.k, self.loop
        chunks = loop.body // loop.chunk
        for i in range(first, first + count):
            following = (i + 1) % chunks
            if "early" in loop.options:
                k.wgmma_wait(loop.sets - 2)
                self._convert(following)
            self._issue(i % chunks)
            if "early" not in loop.options:
                k.wgmma_wait(loop.sets - 1)
                self._convert(following)
            self._end(i, following)

    def _end(self, i: int, following: int) -> None:
        """Promote what can be promoted behind chunk ``i``."""
        k, loop = self.k, self.loop
        place, group = i % self.per_group, i // self.per_group
        last = place == self.per_group - 1
        if "kept" in loop.options and (loop.parts > 1 or last):
            self._keep(following)
        if loop.parts > 1 and place == loop.sets - 2 and group:
            self._promote(self.parts[(group - 1) % loop.parts])
        if loop.parts == 1 and loop.group and last:
            k.wgmma_wait(0)
            self._promote(self.parts[0])

    def _issue(self, i: int) -> None:
        """Issue the wgmmas of chunk ``i`` of the body."""
        k, loop = self.k, self.loop
        part = self.parts[i // self.per_group % loop.parts]
        begins = loop.group > 0 and i % self.per_group == 0
        if "turns" in loop.options:
            k.emit("bar.sync", self.turn, 2 * WARPGROUP)
        k.wgmma_fence()
        opcode = f"wgmma.mma_async.sync.aligned.m64n{loop.n}k16.f32.{loop.type}.{loop.type}"
        fragments = self.fragments[i % loop.sets]
        for j in range(loop.chunk):
            step = (i * loop.chunk + j) % STEPS
            descriptor = self.descriptor + (self.right.byte_offset(0, step * 16) >> 4)
            own = slice(j * FRAGMENT, (j + 1) * FRAGMENT)
            a, trans = fragments[own], (0,)
            if "ss" in loop.options:
                a, trans = self.left + step * 2, (0, 0)
            k.wgmma(opcode, part, a, descriptor, accumulate=j > 0 or not begins, trans=trans)
        k.wgmma_commit()
        if "turns" in loop.options:
            k.emit("bar.arrive", self.next_turn, 2 * WARPGROUP)

    def _promote(self, part: list[Any]) -> None:
        for i, (total, x) in enumerate(zip(self.totals, part, strict=True)):
            self.k.mad(x, self.scales[i >> 1 & 1], total, into=total)

    def _keep(self, i: int) -> None:
        k, fragments = self.k, self.fragments[i % self.loop.sets]
        with k.when(self.never):
            pointer = k.pointer("shared", "b32", self.words).aligned(VECTOR)
            for j in range(0, len(fragments), FRAGMENT):
                pointer.store(fragments[j : j + FRAGMENT])

    def _convert(self, i: int) -> None:
        """Make the fragments of chunk ``i`` of the body, or execute as many instructions."""
        k, loop = self.k, self.loop
        fragments = self.fragments[i % loop.sets]
        if loop.conversion in KINDS:
            for j in range(loop.chunk * loop.extra):
                self._execute(loop.conversion, self.extra, j)
        if loop.conversion not in ("u4", "reg", "scaled"):
            return
        made = [x for word in self._words(i) for x in self._made(word)]
        for variable, value in zip(fragments, made, strict=True):
            k.mov(value, into=variable)

    def _words(self, i: int) -> list[Any]:
        k, chunk = self.k, self.loop.chunk
        if self.loop.conversion == "reg":
            found = []
            for j in range(chunk):
                word = self.held[j % len(self.held)]
                k.mov(k.emit("lop3.b32", word, 0x12345677, self.pairs[0], 0x6A, dtype="b32"),
                      into=word)  # fmt: skip
                found.append(word)
            return found
        words: list[Any] = []
        for step in range(i * chunk, (i + 1) * chunk):
            if "ahead" in self.loop.options:
                if step % 4 == 0:
                    self._load(step + 4)
            elif step % min(chunk, 4) == 0:
                self._load(step, min(chunk, 4))
            words.append(self.vectors[step // 4 % 2][step % 4])
        return words

    def _load(self, step: int, count: int = 4) -> None:
        """Load the words of ``count`` steps."""
        k, (vector, rest) = self.k, divmod(step % 16, 4)
        pointer = k.pointer("shared", "b32", self.words).aligned(count * WORD)
        pointer = pointer + (vector * WORD_BLOCK + rest * WORD) // WORD
        into = self.vectors[vector % 2][rest : rest + count]
        pointer.load(count, order="volatile", into=tuple(into))

    def _made(self, word: Any) -> list[Any]:
        if self.loop.conversion == "scaled":
            return self._scaled(word)
        return [self.k.view(x, "b32") for x in self.recipe.emit(self.k, word, [8])]

    def _scaled(self, word: Any) -> list[Any]:
        """(128 + u) · s − (128 + zero) · s, for rows r and r + 8 in turn."""
        k, kind = self.k, f"{self.loop.type}x2"
        found = []
        for i in range(4):
            part = k.emit("shr.u32", word, 4 * i, dtype="b32") if i else word
            x = k.emit("lop3.b32", part, 0x000F000F, 0x43004300, 0x6A, dtype=kind)
            scale, offset = (self.pairs[j + i % 2].view(kind) for j in (0, 2))
            found.append(k.emit(f"fma.rn.{kind}", x, scale, offset, dtype=kind).view("b32"))
        return found

    def _begin_turns(self) -> None:
        k, last = self.k, TURN_BARRIER + self.loop.warpgroups - 1
        self.turn = k.var("u32", self.warpgroup + TURN_BARRIER)
        self.next_turn = k.var("u32", k.select(self.turn == last, TURN_BARRIER, self.turn + 1))
        with k.if_(self.turn == last):
            k.emit("bar.arrive", TURN_BARRIER, 2 * WARPGROUP)

    def _end_turns(self) -> None:
        with self.k.if_(self.turn == TURN_BARRIER):
            self.k.emit("bar.sync", TURN_BARRIER, 2 * WARPGROUP)

    # --- other instructions -----------------------------------------------------------------------

    def _execute(self, kind: str, registers: list[Any], i: int) -> None:
        k, x, y = self.k, registers[i % REGISTERS], self.pairs[i % 4]
        if kind == "lop":
            made = k.emit("lop3.b32", x, 0x5A5A5A5B, y, 0x6A, dtype="b32")
        elif kind == "ffma":
            of = "f32"
            made = k.emit("fma.rn.f32", x.view(of), 1.5, self.scales[i % 2], dtype=of).view("b32")
        elif kind == "hfma":
            of = "bf16x2"
            made = k.emit("fma.rn.bf16x2", x.view(of), 1.5, y.view(of), dtype=of).view("b32")
        elif kind == "shf":
            made = k.emit("shf.l.wrap.b32", x, y, 7, dtype="b32")
        else:
            pointer = k.pointer("shared", "b32", self.words & ((1 << 14) - 16 + (1 << 13)))
            (made,) = pointer.load(order="volatile")
        k.mov(made, into=x)

    def _execute_until_flag(self) -> None:
        """Execute instructions until the loop of wgmma ends."""
        k = self.k
        self.pairs = [k.var("b32", k.tid.x + i) for i in range(4)]
        self.scales = [k.var("f32", (k.tid.x + i).to("f32")) for i in range(2)]
        registers = [k.var("b32", k.tid.x + i) for i in range(REGISTERS)]
        count, go = k.var("u64", 0), k.var("u32", k.select(self.least == 0, 0, 1))
        start = k.special("clock64")
        with k.while_(lambda: go != 0):
            for i in range(TURN):
                self._execute(self.kernel.kind, registers, i)
            count += 1
            (ended,) = self.flag.load(order="volatile")
            k.mov(k.select(ended == 0, 1, 0), into=go)
        self._report(start, k.special("clock64"), count)
        with k.when(self.never):
            for x in registers:
                k.pointer("shared", "b32", self.words).store(x, order="volatile")
