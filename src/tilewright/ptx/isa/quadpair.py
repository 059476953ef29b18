"""m8n8k4 of f16 as ptxas has it from sm_80 on: shuffles, and f32 arithmetic in each lane.

Lane 16h + 4t + j has row 4h + j of the A of product t, and column 4h + j of its B (with the layouts
that aren't so, a quad first transposes its 4×4 values). Each lane fetches the rows and columns
that its part of D needs. The order of the sums is that of ``tilewright.mma.quadpair_arithmetic``.
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
    made = [_pairwise(m, left[0], right[n], start[n]) for n in range(8)]
    return tuple(m.join(*made[n : n + 2]) for n in range(0, 8, 2))


def _row_lanes(m: Primitives, d: str) -> list[Value]:
    """The lanes whose rows of A this lane needs: its own one, or of f32, two rows apart, two."""
    if d == "f16":
        return [m.lane()]
    first = m.and_(m.lane(), m.const(32, ~2))
    return [first, m.or_(first, m.const(32, 2))]


def _column_lanes(m: Primitives, d: str) -> list[Value]:
    """The lanes with B's columns: all eight, or of f32 a pair in each half."""
    kept, offsets = (0b01100, range(4)) if d == "f16" else (0b01110, range(2))
    first = m.and_(m.lane(), m.const(32, kept))
    return [m.or_(first, m.const(32, half | n)) for half in (0, 16) for n in offsets]


def _start(m: Primitives, c_type: str, d_type: str, c: Values, row_lanes: list[Value]) -> Values:
    """C where the lane has D. Of f16 a lane holds a row, of f32 parts of two rows."""
    if c_type == "f32":
        return c
    if d_type == "f16":
        return _to_f32(m, c)
    upper = _bit(m, 1)
    made: list[Value] = []
    for half in (c[:2], c[2:]):
        for lane in row_lanes:
            low, high = _shuffle(m, half, lane)
            made += _to_f32(m, (m.select(upper, high, low),))
    return tuple(made)


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


def _transpose_quad(m: Primitives, held: Values) -> Values:
    """Value j of the quad's four lanes, in order, for its lane j."""
    first = m.and_(m.lane(), m.const(32, ~3))
    upper, odd = _bit(m, 1), _bit(m, 0)
    made: list[Value] = []
    for k in range(4):
        low, high = _shuffle(m, held, m.or_(first, m.const(32, k)))
        even_one, odd_one = m.split(m.select(upper, high, low), 16)
        made.append(m.select(odd, odd_one, even_one))
    return m.join(*made[:2]), m.join(*made[2:])


def _bit(m: Primitives, n: int) -> Value:
    return m.cmp("ne", m.and_(m.lane(), m.const(32, 1 << n)), m.const(32, 0))


def _shuffle(m: Primitives, held: Values, lane: Value) -> Values:
    return tuple(m.shuffle(x, lane) for x in held)


def _to_f32(m: Primitives, held: Values) -> Values:
    return tuple(m.fcvt("f16", "f32", x) for word in held for x in m.split(word, 16))
