"""f64 arithmetic rounded toward zero, up or down: the nearest result, corrected by its error.

The error of a result to nearest, or a number with its sign, takes a few operations (Knuth, TAOCP 2,
for sums; Boldo and Muller 2011 for fma; a remainder for the others) if nothing over- or underflows.
If all operands are zero or in a medium range of exponents, the result is then corrected by at most
one unit in the last place; otherwise integer arithmetic is used (``soft_f64``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import and_

from . import soft_f64 as soft64
from .expressions import Expr, shared
from .vector_memory import any_of

SIGN = 1 << 63
LEAST, MOST = -450, 450  # exponents of factors and quotients; twice as much for sums

Error = Callable[..., tuple[Expr, Expr]]


def arithmetic(op: str, operands: tuple[Expr, ...], rnd: str) -> Expr:
    """``op``: add mul div sqrt fma, of lanes of f64 bits."""
    slow: Callable[..., Expr] = getattr(soft64, op)
    if rnd not in ("rz", "rm", "rp"):
        return slow(*operands, rnd)

    def body(*x: Expr) -> Expr:
        b, floats = x[0].b, [o.float for o in x]
        out_of_range = any_of(~reduce(and_, _in_range(op, x)))
        with b.if_else(out_of_range, likely=False) as (then, otherwise):
            with then:
                exact, slow_block = slow(*x, rnd), b.block
            with otherwise:
                nearest, error = _ERRORS[op](*floats)
                fast = _zero(op, _step(nearest, error, rnd), nearest, x, rnd)
                fast_block = b.block
        phi = b.phi(fast.type)
        phi.add_incoming(fast.v, fast_block)
        phi.add_incoming(exact.v, slow_block)
        return Expr(b, phi)

    return shared(f"tw.f64.near.{op}.{rnd}", body, operands[0].type, *operands)


def _in_range(op: str, operands: tuple[Expr, ...]) -> list[Expr]:
    """For each operand, whether its exponent is in range or it is zero (except a divisor)."""
    predicates = []
    for i, x in enumerate(operands):
        factor = 2 if op == "add" or i == 2 else 1
        low, high = ((1023 + factor * e) << 52 for e in (LEAST, MOST))
        magnitude = x if op == "sqrt" else x & ~SIGN
        inside = (magnitude - low) < high - low
        predicates.append(inside if op == "div" and i == 1 else inside | (x << 1).eq(0))
    return predicates


def _step(nearest: Expr, error: Expr, rnd: str) -> Expr:
    """Move the nearest result by one unit if the exact result is on the side of the rounding."""
    bits, minus = nearest.bits, nearest.bits >> 63
    if rnd == "rz":
        inward = error.ne(0.0) & (error.bits ^ bits).negative
        return bits - inward.zext(64)
    moves = error > 0.0 if rnd == "rp" else error < 0.0
    outward = minus if rnd == "rm" else minus ^ 1
    return moves.pick(bits + (outward << 1) - 1, bits)


def _zero(op: str, result: Expr, nearest: Expr, x: tuple[Expr, ...], rnd: str) -> Expr:
    """Correct the sign of a zero sum: −0 when rounding down, unless both terms are +0."""
    if rnd != "rm" or op not in ("add", "fma"):
        return result
    sign = x[0] | x[1] if op == "add" else x[0] ^ x[1] | x[2]
    return nearest.eq(0.0).pick(sign & SIGN, result)


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
    """The error, rounded; its sign is exact."""
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
