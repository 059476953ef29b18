"""Kernels that bring tokens to their experts and back; memory-bound.

    route      of the expert of each entry (token, choice): the position of the entry among those
               sorted by expert, and of each position the token; the end of each expert's entries;
               one CTA
    permute    copies each token's row to the positions of its entries
    combine    adds up the rows of a token's entries, times their weights, in the order of choices

Each expert's entries are in any order, which no result depends on. An index that is no expert has
position -1, and its entry is left out.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ...builder import Builder, Pointer, Reg, Traced, trace

MAX_EXPERTS = 1024
THREADS, ROW_THREADS = 1024, 256
VECTOR = 8  # elements of 16 bits that a thread copies at once
NOWHERE = -1


@cache
def route(index: str) -> Traced:
    """``route(indices, entries, choices, experts, positions, tokens, ends)`` with indices of s32 or
    s64.
    """
    params = {
        "indices": f"ptr {index}", "entries": "u32", "choices": "u32", "experts": "u32",
        "positions": "ptr s32", "tokens": "ptr s32", "ends": "ptr s32",
    }  # fmt: skip
    return trace(_route, params=params, name=f"moe_route_{index}", block=THREADS, lines=False)


def _route(
    k: Builder, indices: Pointer, entries: Reg, choices: Reg, experts: Reg, positions: Pointer,
    tokens: Pointer, ends: Pointer,
) -> None:  # fmt: skip
    k.wait_for_prior_grids()
    k.launch_dependent_grids()
    thread = k.tid.x
    counts = k.shared("u32", MAX_EXPERTS)
    (counts + thread).store(0)
    k.barrier()
    for entry in k.range(thread, entries, THREADS, unroll=False):
        expert, exists = _expert(k, indices, entry, experts)
        with k.if_(exists):
            k.atomic_add(counts + expert, 1)
    k.barrier()
    own = k.mov((counts + thread).load(1)[0])
    end = k.var(own)
    for i in range(MAX_EXPERTS.bit_length() - 1):  # the sum of all counts up to this one
        distance = 1 << i
        before = k.var("u32", 0)
        with k.if_(thread >= distance):
            before.set((counts + (thread - distance)).load(1)[0])
        end += before
        k.barrier()
        (counts + thread).store(end)
        k.barrier()
    with k.if_(thread < experts):
        ends[thread] = end.view("s32")
    (counts + thread).store(end - own)
    k.barrier()
    for entry in k.range(thread, entries, THREADS, unroll=False):
        expert, exists = _expert(k, indices, entry, experts)
        position = k.var("s32", NOWHERE)
        with k.if_(exists):
            position.set(k.atomic_add(counts + expert, 1).view("s32"))
            tokens[position.view("u32")] = (entry // choices).view("s32")
        positions[entry] = position


def _expert(k: Builder, indices: Pointer, entry: Reg, experts: Reg) -> tuple[Reg, Reg]:
    """The expert of an entry, and whether there is one."""
    index = (indices + entry).load(1)[0]
    if index.dtype.name == "s64":
        return index.to("u32"), (index >= 0) & (index < experts.to("s64"))
    return index.view("u32"), index.view("u32") < experts


@cache
def permute(type_: str) -> Traced:
    """``permute(x, row_stride, columns, choices, positions, y)``, a CTA for each row of x."""
    params = {
        "x": f"ptr {type_} align 16", "row_stride": "u64", "columns": "u32", "choices": "u32",
        "positions": "ptr s32", "y": f"ptr {type_} align 16",
    }  # fmt: skip
    return trace(
        _permute, params=params, name=f"moe_permute_{type_}", block=ROW_THREADS, lines=False
    )


def _permute(
    k: Builder, x: Pointer, row_stride: Reg, columns: Reg, choices: Reg, positions: Pointer,
    y: Pointer,
) -> None:  # fmt: skip
    k.wait_for_prior_grids()
    k.launch_dependent_grids()
    token = k.ctaid.x
    row = x + token.to("u64") * row_stride
    for column in k.range(k.tid.x * VECTOR, columns, ROW_THREADS * VECTOR, unroll=False):
        values = (row + column).cast("b32").aligned(16).load(4)
        for choice in k.range(0, choices, unroll=False):
            position = (positions + (token * choices + choice)).load(1)[0]
            with k.if_(position >= 0):
                there = position.view("u32").to("u64") * columns.to("u64") + column.to("u64")
                (y + there).cast("b32").aligned(16).store(values)


@cache
def combine(type_: str, weight_type: str) -> Traced:
    """``combine(y, columns, choices, positions, weights, d)``, a CTA for each row of D."""
    params = {
        "y": f"ptr {type_} align 16", "columns": "u32", "choices": "u32", "positions": "ptr s32",
        "weights": f"ptr {weight_type}", "d": f"ptr {type_} align 16",
    }  # fmt: skip
    name = f"moe_combine_{type_}_{weight_type}"
    return trace(_combine, params=params, name=name, block=ROW_THREADS, lines=False)


def _combine(
    k: Builder, y: Pointer, columns: Reg, choices: Reg, positions: Pointer, weights: Pointer,
    d: Pointer,
) -> None:  # fmt: skip
    k.wait_for_prior_grids()
    token = k.ctaid.x
    for column in k.range(k.tid.x * VECTOR, columns, ROW_THREADS * VECTOR, unroll=False):
        totals: list[Any] = [k.var("f32", 0.0) for _ in range(VECTOR)]
        for choice in k.range(0, choices, unroll=False):
            entry = token * choices + choice
            position = (positions + entry).load(1)[0]
            with k.if_(position >= 0):
                weight = k.load_vector(weights + entry, 1, dtype="f32")[0]
                row = y + position.view("u32").to("u64") * columns.to("u64")
                for total, value in zip(
                    totals, k.load_vector(row + column, VECTOR, dtype="f32"), strict=True
                ):
                    total.set(k.fma(weight, value, total))
        there = d + token.to("u64") * columns.to("u64") + column
        k.store_vector(there, totals)
