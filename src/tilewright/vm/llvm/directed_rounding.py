"""f64 rounded toward zero, up or down: the nearest one, and on which side of it the exact one is.

The error of a result to nearest, or a number of its sign, is a few operations away (Knuth, TAOCP 2,
for sums; Boldo and Muller 2011 for fma; a remainder for the others), as long as nothing over- or
underflows. Where all operands are zeros or of middling size a step of one unit is then all that is
left to do; where any lane's is not, integers do it (``llvm_soft64``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import and_

from . import soft_f64 as soft64
from .expressions import Expr, shared
from .vector_memory import any_of

SIGN = 1 << 63
LEAST, MOST = -450, 450  # exponents of factors and quotients; twice that of sums

Error = Callable[..., tuple[Expr, Expr]]


def arithmetic(op: str, operands: tuple[Expr, ...], rnd: str) -> Expr:
    """``op``: add mul div sqrt fma, of lanes of f64 bits."""
    slow: Callable[..., Expr] = getattr(soft64, op)
    if rnd not in ("rz", "rm", "rp"):
        return slow(*operands, rnd)

    def body(*x: Expr) -> Expr:
        b, floats = x[0].b, [o.float for o in x]
        with b.if_else(any_of(~reduce(and_, _middling(op, x))), likely=False) as (then, otherwise):
            with then:
                exact, went = slow(*x, rnd), b.block
            with otherwise:
                nearest, error = _ERRORS[op](*floats)
                quick = _zero(op, _step(nearest, error, rnd), nearest, x, rnd)
                came = b.block
        phi = b.phi(quick.type)
        phi.add_incoming(quick.v, came)
        phi.add_incoming(exact.v, went)
        return Expr(b, phi)

    return shared(f"tw.f64.near.{op}.{rnd}", body, operands[0].type, *operands)


def _middling(op: str, operands: tuple[Expr, ...]) -> list[Expr]:
    """Of each operand whether it is zero (where it may be) or of an exponent in range."""
    found = []
    for i, x in enumerate(operands):
        wide = 2 if op == "add" or i == 2 else 1
        low, high = ((1023 + wide * e) << 52 for e in (LEAST, MOST))
        size = x if op == "sqrt" else x & ~SIGN
        inside = (size - low) < high - low
        found.append(inside if op == "div" and i == 1 else inside | (x << 1).eq(0))
    return found


def _step(nearest: Expr, error: Expr, rnd: str) -> Expr:
    """One unit to where the exact result is, where that is the direction."""
    bits, minus = nearest.bits, nearest.bits >> 63
    if rnd == "rz":
        inward = error.ne(0.0) & (error.bits ^ bits).negative
        return bits - inward.zext(64)
    moves = error > 0.0 if rnd == "rp" else error < 0.0
    outward = minus if rnd == "rm" else minus ^ 1
    return moves.pick(bits + (outward << 1) - 1, bits)


def _zero(op: str, made: Expr, nearest: Expr, x: tuple[Expr, ...], rnd: str) -> Expr:
    """A sum of zero is −0 where rounding down, but of two that are +0."""
    if rnd != "rm" or op not in ("add", "fma"):
        return made
    sign = x[0] | x[1] if op == "add" else x[0] ^ x[1] | x[2]
    return nearest.eq(0.0).pick(sign & SIGN, made)


# --- nearest results and their errors -------------------------------------------------------------


def _fused(a: Expr, b: Expr, c: Expr) -> Expr:
    return a.intrinsic("fma", b, c)


def _negated(a: Expr) -> Expr:
    return (a.bits ^ SIGN).float


def _add(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _mul(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    product = a * b
    return product, _fused(a, b, _negated(product))


def _fma(a: Expr, b: Expr, c: Expr) -> tuple[Expr, Expr]:
    """The error rounded: its sign is right."""
    nearest, (product, rest) = _fused(a, b, c), _mul(a, b)
    lower, last = _add(c, rest)
    upper, middle = _add(product, lower)
    return nearest, ((upper - nearest) + middle) + last


def _div(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """The remainder, with the sign of the error."""
    quotient = a / b
    rest = _fused(_negated(quotient), b, a)
    return quotient, (rest.bits ^ b.bits & SIGN).float


def _sqrt(a: Expr) -> tuple[Expr, Expr]:
    root = a.sqrt()
    return root, _fused(_negated(root), root, a)


_ERRORS: dict[str, Error] = {"add": _add, "mul": _mul, "fma": _fma, "div": _div, "sqrt": _sqrt}
