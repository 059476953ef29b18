"""m8n8k4 of f16 as ptxas has it from sm_80 on: shuffles, and f32 arithmetic in each lane.

Lane 16h + 4t + j holds row 4h + j of A and column 4h + j of B of product t. For column-major A or
row-major B a quad first transposes its 4×4 values. Each lane fetches the rows and columns that its
part of D needs. The order of additions is that of ``tilewright.mma.quadpair_arithmetic``.
"""

from __future__ import annotations

from .primitives import Primitives, Value
from .row import Form

Values = tuple[Value, ...]


def lower_m8n8k4(m: Primitives, f: Form, a: Values, b: Values, c: Values) -> Values:
    """D = A B + C for four pairs of quads; ``f.entry`` is the row of ``tilewright.mma``."""
    i = f.entry
    rows = a if i.alayout == "row" else _transpose_quad(m, a)
    columns = b if i.blayout == "col" else _transpose_quad(m, b)
    row_lanes, column_lanes = _row_lanes(m, i.d), _column_lanes(m, i.d)
    left = [_to_f32(m, _shuffle(m, rows, lane)) for lane in row_lanes]
    right = [_to_f32(m, _shuffle(m, columns, lane)) for lane in column_lanes]
    start = _start(m, i.c, i.d, c, row_lanes)
    if i.d == "f32":
        return tuple(
            _chain(m, left[n >> 1 & 1], right[n >> 1 & 2 | n & 1], start[n]) for n in range(8)
        )
    results = [_pairwise(m, left[0], right[n], start[n]) for n in range(8)]
    return tuple(m.join(*results[n : n + 2]) for n in range(0, 8, 2))


def _row_lanes(m: Primitives, d: str) -> list[Value]:
    """The lanes with the rows of A that this lane needs: itself, or for f32 D two, with rows i and
    i + 2.
    """
    if d == "f16":
        return [m.lane()]
    first = m.and_(m.lane(), m.const(32, ~2))
    return [first, m.or_(first, m.const(32, 2))]


def _column_lanes(m: Primitives, d: str) -> list[Value]:
    """The lanes with B's columns: all eight, or for f32 D a pair in each half."""
    mask, offsets = (0b01100, range(4)) if d == "f16" else (0b01110, range(2))
    first = m.and_(m.lane(), m.const(32, mask))
    return [m.or_(first, m.const(32, half | n)) for half in (0, 16) for n in offsets]


def _start(m: Primitives, c_type: str, d_type: str, c: Values, row_lanes: list[Value]) -> Values:
    """C, distributed like D: a lane holds a row of f16, or parts of two rows of f32."""
    if c_type == "f32":
        return c
    if d_type == "f16":
        return _to_f32(m, c)
    upper = _bit(m, 1)
    values: list[Value] = []
    for half in (c[:2], c[2:]):
        for lane in row_lanes:
            low, high = _shuffle(m, half, lane)
            values += _to_f32(m, (m.select(upper, high, low),))
    return tuple(values)


def _chain(m: Primitives, a: Values, b: Values, c: Value) -> Value:
    total = m.const(32, 0)
    for x, y in zip(a, b, strict=True):
        total = m.fma("f32", x, y, total)
    return m.fadd("f32", c, total)


def _pairwise(m: Primitives, a: Values, b: Values, c: Value) -> Value:
    for k in (0, 2):
        product = m.fmul("f32", a[k], b[k])
        c = m.fadd("f32", c, m.fma("f32", a[k + 1], b[k + 1], product))
    return m.fcvt("f32", "f16", c)


def _transpose_quad(m: Primitives, registers: Values) -> Values:
    """For lane j of a quad: value j of its four lanes, in order."""
    first = m.and_(m.lane(), m.const(32, ~3))
    upper, odd = _bit(m, 1), _bit(m, 0)
    values: list[Value] = []
    for k in range(4):
        low, high = _shuffle(m, registers, m.or_(first, m.const(32, k)))
        even_value, odd_value = m.split(m.select(upper, high, low), 16)
        values.append(m.select(odd, odd_value, even_value))
    return m.join(*values[:2]), m.join(*values[2:])


def _bit(m: Primitives, n: int) -> Value:
    return m.cmp("ne", m.and_(m.lane(), m.const(32, 1 << n)), m.const(32, 0))


def _shuffle(m: Primitives, registers: Values, lane: Value) -> Values:
    return tuple(m.shuffle(x, lane) for x in registers)


def _to_f32(m: Primitives, registers: Values) -> Values:
    return tuple(m.fcvt("f16", "f32", x) for word in registers for x in m.split(word, 16))
