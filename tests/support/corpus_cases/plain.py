"""The corpus's table: plain C."""

from __future__ import annotations

import numpy as np

from corpus_cases.table import Gives, case, normal, whole, words

PLAIN = ("clang/plain", "clang/plain_O0")
F32, F16 = np.float32, np.float16


@case(*PLAIN, grid=2, block=40)
def stack_machine(rng):
    code = rng.integers(0, 16, 200).astype(np.uint8)
    pushed = rng.random(200) < 0.4
    code[pushed] = rng.integers(128, 256, pushed.sum())
    found = [_stack_machine(code.tolist(), t) for t in range(40)]
    return [code, 200, Gives(np.array(2 * found, np.uint32).view(np.int32))]


def _stack_machine(code: list[int], thread: int) -> int:
    stack, top, at = [0] * 16, 0, -1
    while (at := at + 1) < len(code):
        op, a, b = code[at], stack[top & 15], stack[top - 1 & 15]
        top += 1 if op in (4, 5) or op & 128 else -1 if op < 3 else 0
        if op == 6:
            stack[top - 1 & 15] = a
        if op == 8:
            at += a & 1
            continue
        known = {0: a + b, 1: b - a, 2: a * b, 3: -a, 4: thread, 5: a, 6: b, 7: a ^ b << 3}
        known |= {9: max(a, b), 10: (a % 2**32).bit_count()}
        made = op & 127 if op & 128 else known.get(op, a + 1)
        stack[top & 15] = (made + 2**31) % 2**32 - 2**31
    return stack[top & 15] % 2**32


@case(*PLAIN, grid=1, block=50)
def by_table(rng):
    which = whole(rng, 6, low=0, high=3)
    steps = whole(rng, 2, 4, low=-20, high=20)
    step = np.dtype([("by", "i4"), ("times", "i2", 3)], align=True)
    plan = np.zeros((), np.dtype([("scale", "f8"), ("steps", step, 2), ("last", "i1")], align=True))
    plan["scale"], plan["last"] = 0.25, -7
    plan["steps"]["by"], plan["steps"]["times"] = steps[:, 0], steps[:, 1:]
    ways = (lambda x, y: 2 * x + y, lambda x, y: abs(x - y), lambda x, y: x * 31 ^ y)
    out = []
    for t in range(50):
        value = t
        for i in range(6):
            value = ways[which[(i + t) % 6]](value, int(steps[i % 2, 0] * steps[i % 2, 1 + i // 2]))
            value = (value + 2**31) % 2**32 - 2**31
        out.append(0.25 * value - 7)
    return [which, plan.tobytes(), Gives(np.array(out))]


@case(*PLAIN, grid=2, block=128)
def block_sums(rng):
    x = whole(rng, 1000, dtype=F32)
    return [x, Gives(x.sum(keepdims=True)), 1000]


@case(*PLAIN, grid=1, block=33)
def powers(rng):
    x, m = words(rng, 2, 33, dtype=np.uint64) >> np.array([[52], [1]], np.uint64)
    found = [pow(int(a), int(a), int(b)) for a, b in zip(x, m, strict=True)]
    return [x, m, Gives(np.array(found, np.uint64))]


@case(*PLAIN, grid=1, block=35)
def heap_sort(rng):
    x = words(rng, 35, 20, dtype=np.int32)
    return [x, Gives(np.sort(x))]


@case(*PLAIN, grid=1, block=32)
def as_text(rng):
    x = words(rng, 32, dtype=np.uint64) >> np.arange(32, 64, dtype=np.uint64)
    texts = [np.base_repr(int(v), 2 + t % 15).lower()[-24:].ljust(24) for t, v in enumerate(x)]
    return [x, Gives(np.frombuffer("".join(texts).encode(), np.uint8))]


@case(*PLAIN, grid=3, block=64)
def exchanges(rng):
    x = words(rng, 192)
    word = np.array([np.bitwise_xor.reduce(x), x.sum(dtype=np.uint32), 2**32 - 1], np.uint32)
    most = max(int(v) << 32 | i for i, v in enumerate(x))
    return [Gives(word), Gives(np.array([most], np.uint64)), x]


@case(*PLAIN, grid=2, block=50)
def halves(rng):
    x, y = normal(rng, 2, 100, dtype=F16)
    wide = x.astype(F32) / y.astype(F32) + np.abs(y).astype(F32) + np.floor(x).astype(F32)
    fused = x.astype(float) * y - np.where(x > y, x, F16(2))
    return [x, y, Gives(fused.astype(F16)), Gives(wide)]
