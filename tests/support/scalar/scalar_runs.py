"""Random scalar programs on the virtual machine and on a GPU, and where their results part.

``on_vm`` and ``on_gpu`` give the (slots, THREADS) words that a program stores; ``parted`` finds the
steps whose operands are the same on both and whose results aren't, ``reduced`` the smallest program
with which a step still differs: mostly the step alone, its operands loaded.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from scalar.scalar_operands import THREADS
from scalar.scalar_programs import Program, Step, module, size, slots, words_of
from tilewright import cuda
from tilewright.ptx.isa import form
from tilewright.vm import Machine
from tilewright.vm.state.global_memory import GlobalMemory

Values = dict[str, np.ndarray]  # of each register (words, THREADS)
Run = Callable[[Program, np.ndarray], np.ndarray]


def on_vm(
    p: Program, words: np.ndarray, memory: GlobalMemory, compiled: bool = False
) -> np.ndarray:
    """By the evaluator that takes one step at a time, or as compiled code."""
    machine = Machine(p.target, threads=1, memory=memory)
    machine.load(module([p]))
    given, made = machine.alloc(max(8, words.nbytes)), np.zeros((size(p.made), THREADS), np.uint64)
    out = machine.upload(made)
    machine.write(given, words)
    try:
        on_step = None if compiled else _nothing
        machine.launch(p.name, 1, THREADS, [given, out], on_step=on_step)
        return machine.download(out, made)
    finally:
        machine.free(given)
        machine.free(out)


def _nothing(step: object) -> None:
    pass


def on_gpu(programs: Sequence[Program], words: Sequence[np.ndarray]) -> list[np.ndarray]:
    """As one module, compiled without contraction."""
    gpu = cuda.gpu()
    made = [np.zeros((size(p.made), THREADS), np.uint64) for p in programs]
    places = [(_put(gpu, w), _put(gpu, m)) for w, m in zip(words, made, strict=True)]
    try:
        with gpu.load(cuda.compile(module(programs), gpu.arch, contract=False)) as loaded:
            for p, pair in zip(programs, places, strict=True):
                gpu.launch(loaded[p.name], 1, THREADS, struct.pack("<QQ", *pair))
            gpu.wait()
        for (_, out), buffer in zip(places, made, strict=True):
            gpu.download(buffer, out)
    finally:
        for place in (x for pair in places for x in pair):
            gpu.free(place)
    return made


def _put(gpu: cuda.Gpu, words: np.ndarray) -> int:
    place = gpu.alloc(max(8, words.nbytes))
    if words.size:
        gpu.upload(place, np.ascontiguousarray(words))
    return place


# --- where they part --------------------------------------------------------------------------


def values(p: Program, words: np.ndarray, made: np.ndarray) -> Values:
    """Every register's bits."""
    found = {}
    for names, rows in ((p.given, words), (p.made, made)):
        for name, at in slots(names).items():
            found[name] = rows[at : at + words_of(name)]
    return found


@dataclass(frozen=True)
class Difference:
    """A step that gives other results of the same operands, and the first lane in which it does."""

    index: int
    lane: int
    operands: str
    theirs: str
    ours: str

    def __str__(self) -> str:
        return f"lane {self.lane}: {self.operands}: GPU {self.theirs}, here {self.ours}"


def parted(p: Program, words: np.ndarray, theirs: np.ndarray, ours: np.ndarray) -> list[Difference]:
    """The steps that differ and don't because others did."""
    one, other = values(p, words, theirs), values(p, words, ours)
    return [d for i, step in enumerate(p.steps) for d in _differs(i, step, one, other)]


def _differs(index: int, step: Step, one: Values, other: Values) -> Iterator[Difference]:
    read = [name for name in step.reads if name not in step.writes]
    same = np.ones(THREADS, bool)
    for name in read:
        same &= (one[name] == other[name]).all(0)
    if any("convergent" in form(o).effects for o in step.opcode.split()):
        same &= same.all()
    wrong = np.zeros(THREADS, bool)
    for name in step.writes:
        wrong |= (one[name] != other[name]).any(0)
    for lane in np.flatnonzero(wrong & same)[:1].tolist():
        texts = (_told(x, names, lane) for x, names in
                 ((other, read), (one, step.writes), (other, step.writes)))  # fmt: skip
        yield Difference(index, lane, *texts)


def _told(known: Values, names: Sequence[str], lane: int) -> str:
    """``%r1=0x7F800000 %p2=0x1``"""
    words = ((name, known[name][:, lane].tolist()[::-1]) for name in names)
    return " ".join(f"{name}={'_'.join(f'{w:#x}' for w in ws)}" for name, ws in words)


# --- the smallest program that differs --------------------------------------------------------


def reduced(
    p: Program, index: int, known: Values, theirs: Run, ours: Run
) -> tuple[Program, np.ndarray]:
    """Steps of the program and the words they load, so that the step at ``index`` differs: it
    alone, or with what made its operands, what made theirs, and so on, less what isn't needed.
    """
    maker = {name: i for i, step in enumerate(p.steps) for name in step.writes}
    kept = {index}

    def differs(steps: set[int]) -> bool:
        q = p.only(sorted(steps))
        words = loaded(q, known)
        return bool(parted(q, words, theirs(q, words), ours(q, words)))

    while not differs(kept):
        more = {maker[r] for i in kept for r in p.steps[i].reads if r in maker} - kept
        if not more:
            break  # only all of the program does it
        kept |= more
    for i in sorted(kept - {index}):
        if differs(kept - {i}):
            kept -= {i}
    q = p.only(sorted(kept))
    return q, loaded(q, known)


def loaded(q: Program, known: Values) -> np.ndarray:
    """The words that a program loads, of known registers."""
    return np.concatenate([np.zeros((0, THREADS), np.uint64), *(known[r] for r in q.given)])
