"""Exchange between the lanes of a warp: ``shfl``, ``vote``, ``match``, ``redux``, ``elect``.

Each waits for the lanes of its member mask and then operates on those that have not exited.
"""

from __future__ import annotations

from collections.abc import Callable

from .compose import ALL_ONES, FORMATS, float_min_max, int_min_max, magnitude, signed
from .primitives import Primitives, Value
from .row import Form, Options, Requirement, row

VOLTA: Options = {"ptx": "6.0", "target": "sm_70", "effects": "convergent"}
OLD: Requirement = ("6.4", "sm_70")  # forms without .sync are removed there
KEPLER: Options = {"ptx": "6.0", "target": "sm_30", "effects": "convergent"}


def _present(m: Primitives, members: Value | None) -> Value:
    """The mask of the members that have not exited. Forms without ``.sync`` have no member mask:
    the active lanes take part.
    """
    return m.active() if members is None else m.and_(members, m.active())


@row(
    "shfl.sync.{mode}.b32",
    "d:b32|p:pred? = a:b32, b:b32, c:b32, members:b32",
    mode="up down bfly idx",
    **KEPLER,
)
@row(
    "shfl.{mode}.b32", "d:b32|p:pred? = a:b32, b:b32, c:b32", mode="up down bfly idx",
    ptx="3.0", target="sm_30", removed=OLD,
)  # fmt: skip
def shfl(
    m: Primitives, f: Form, a: Value, b: Value, c: Value, members: Value | None = None
) -> tuple[Value, Value]:
    """``a`` of another lane of the segment, or the lane's own ``a`` if that lane is out of range;
    ``p``: whether it is in range.
    """
    lane, five = m.lane(), m.const(32, 31)
    segment = m.and_(m.lshr(c, m.const(32, 8)), five)
    inside = m.not_(segment)
    limit = m.or_(m.and_(lane, segment), m.and_(m.and_(c, five), inside))
    step = m.and_(b, five)
    if f.mode == "up":
        source = m.sub(lane, step)
    elif f.mode == "down":
        source = m.add(lane, step)
    elif f.mode == "bfly":
        source = m.xor(lane, step)
    else:
        source = m.or_(m.and_(lane, segment), m.and_(step, inside))
    in_range = m.cmp("ge" if f.mode == "up" else "le", source, limit, True)
    return m.shuffle(a, m.select(in_range, source, lane)), in_range


@row("vote.sync.{mode}.pred", "d:pred = a:pred, members:b32", mode="all any uni", **KEPLER)
@row(
    "vote.{mode}.pred",
    "d:pred = a:pred",
    mode="all any uni",
    ptx="1.2",
    target="sm_12",
    removed=OLD,
)
def vote(m: Primitives, f: Form, a: Value, members: Value | None = None) -> Value:
    """Whether the predicate holds in all members, in any, or is the same in all of them."""
    present, zero = _present(m, members), m.const(32, 0)
    holds = m.and_(m.ballot(a), present)
    any_, all_ = m.cmp("ne", holds, zero), m.cmp("eq", holds, present)
    if f.mode == "any":
        return any_
    return all_ if f.mode == "all" else m.or_(all_, m.not_(any_))


@row("vote.sync.ballot.b32", "d:b32 = a:pred, members:b32", **KEPLER)
@row("vote.ballot.b32", "d:b32 = a:pred", ptx="2.0", target="sm_20", removed=OLD)
def ballot(m: Primitives, f: Form, a: Value, members: Value | None = None) -> Value:
    """The members' predicates, a bit for each lane."""
    return m.and_(m.ballot(a), _present(m, members))


@row("activemask.b32", "d:b32 =", ptx="6.2", target="sm_30")
def activemask(m: Primitives, f: Form) -> Value:
    """The lanes that execute this instruction."""
    return m.active()


@row("match.any.sync.{T}", "d:b32 = a:T, members:b32", T="b32 b64", **VOLTA)
def match_any(m: Primitives, f: Form, a: Value, members: Value) -> Value:
    """The members whose ``a`` equals this lane's."""
    return _equals(m, a, _present(m, members))


@row("match.all.sync.{T}", "d:b32|p:pred? = a:T, members:b32", T="b32 b64", **VOLTA)
def match_all(m: Primitives, f: Form, a: Value, members: Value) -> tuple[Value, Value]:
    """The member mask if ``a`` is equal in all members, else 0; ``p``: whether it is equal."""
    present = _present(m, members)
    same = m.cmp("eq", _equals(m, a, present), present)
    return m.select(same, present, m.const(32, 0)), same


def _equals(m: Primitives, a: Value, present: Value) -> Value:
    equal_lanes = m.const(32, 0)
    for lane in range(32):
        equal = m.cmp("eq", m.shuffle(a, m.const(32, lane)), a)
        bit = m.select(equal, m.const(32, 1 << lane), m.const(32, 0))
        equal_lanes = m.or_(equal_lanes, bit)
    return m.and_(equal_lanes, present)


def _reduce(
    m: Primitives, a: Value, present: Value, identity: Value, fn: Callable[[Value, Value], Value]
) -> Value:
    """``fn`` over ``a`` of the lanes in ``present``, in order of lane."""
    total = identity
    for lane in range(32):
        is_in = m.cmp("ne", m.and_(present, m.const(32, 1 << lane)), m.const(32, 0))
        total = fn(total, m.select(is_in, m.shuffle(a, m.const(32, lane)), identity))
    return total


REDUX: Options = {"ptx": "7.0", "target": "sm_80", "effects": "convergent"}


@row("redux.sync.{op}.{T}", "d:T = a:T, members:b32", op="add min max", T="u32 s32", **REDUX)
@row("redux.sync.{op}.{T}", "d:T = a:T, members:b32", op="and or xor", T="b32", **REDUX)
def redux(m: Primitives, f: Form, a: Value, members: Value) -> Value:
    """Sum (wrapping), minimum, maximum or bitwise combination of the members' ``a``."""
    present, is_signed = _present(m, members), signed(f.T)
    largest = (1 << 31) - 1 if is_signed else ALL_ONES
    smallest = -(1 << 31) if is_signed else 0
    identity = {"min": largest, "max": smallest, "and": ALL_ONES}.get(f.op, 0)
    fn = {"add": m.add, "and": m.and_, "or": m.or_, "xor": m.xor}.get(
        f.op, lambda x, y: int_min_max(m, f.op, x, y, is_signed)
    )
    return _reduce(m, a, present, m.const(32, identity), fn)


@row(
    "redux.sync.{op}[.abs][.NaN].f32",
    "d:f32 = a:f32, members:b32",
    op="min max",
    ptx="8.6",
    target="sm_100a",
    effects="convergent",
)
def redux_f32(m: Primitives, f: Form, a: Value, members: Value) -> Value:
    """Minimum or maximum. NaNs are ignored without ``.NaN``, unless all values are NaNs."""
    present = _present(m, members)
    a = magnitude(m, "f32", a) if f.abs else a
    nans = m.ballot(m.fcmp("f32", "nan", a, a))
    numbers = m.and_(present, m.not_(nans))
    identity = m.const(32, FORMATS["f32"].infinity | (1 << 31 if f.op == "max" else 0))
    best = _reduce(m, a, numbers, identity, lambda x, y: float_min_max(m, "f32", f.op, x, y))
    lost = (
        numbers if not f.NaN else m.select(m.cmp("eq", numbers, present), present, m.const(32, 0))
    )
    return m.select(m.cmp("eq", lost, m.const(32, 0)), m.const(32, FORMATS["f32"].nan), best)


@row("elect.sync", "d:u32|p:pred = members:u32", ptx="8.0", target="sm_90", effects="convergent")
def elect(m: Primitives, f: Form, members: Value) -> tuple[Value, Value]:
    """The lane of the lowest member; ``p`` is true only there."""
    present = _present(m, members)
    leader = m.clz(m.brev(present))
    return leader, m.cmp("eq", m.lane(), leader)
