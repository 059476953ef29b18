"""Conversions: values to other formats, bits to other types, and packing of halves into words.

``to`` converts the value, always with an explicit rounding; ``view`` keeps the bits.
"""

from __future__ import annotations

from typing import Any

from ...dtypes import DType
from ..emitter import Emitter
from ..operations.variables import Variables
from ..source_location import kernel_error
from ..values.register_class import CLASSES, checked_dtype
from ..values.registers import Reg
from .arithmetic import ArithmeticOperations

_INTEGER_KINDS = ("int", "uint")
_NATIVE = ("f16", "f32", "f64")
_ROUNDINGS = ("rn", "rz", "rm", "rp")


class ConversionOperations:
    """Conversions of registers."""

    def __init__(
        self, emitter: Emitter, variables: Variables, arithmetic: ArithmeticOperations
    ) -> None:
        self._emitter = emitter
        self._variables = variables
        self._arithmetic = arithmetic

    def convert(
        self, a: Reg, dtype: str | DType, rnd: str = "", *, sat: bool = False, ftz: bool = False
    ) -> Reg:
        """The value of ``a`` in another format. ``rnd``: rn, rz, rm or rp; the default is rz to an
        integer, else rn.

        Narrowing integers truncates, or saturates with ``sat``. A predicate becomes 0 or 1, and a
        number becomes a predicate by ``!= 0``. f16, bf16, f32 and f64 convert to each other and to
        integers.
        """
        t, given = checked_dtype(dtype), a.dtype
        if rnd and rnd not in _ROUNDINGS:
            raise kernel_error(f"rnd must be rn, rz, rm or rp, got {rnd!r}")
        if t is given:
            return self._variables.as_result(a, None)
        if t.name == "pred":
            return self._arithmetic.compare("ne", a, 0)
        if given.name == "pred":
            return self._from_predicate(a, t)
        if given.kind == "bits" or t.kind not in (*_INTEGER_KINDS, "float") or t.bits < 8:
            raise kernel_error(
                f"{given.name} can't be converted to {t.name}", "view the bits with .view"
            )
        if given.kind in _INTEGER_KINDS and t.kind in _INTEGER_KINDS:
            return self._integer(a, t, sat)
        return self._float_convert(a, t, rnd, sat, ftz)

    def _from_predicate(self, a: Reg, t: DType) -> Reg:
        if t.kind == "float":
            one, zero = self._variables.const(t, 1.0), self._variables.const(t, 0.0)
            return self._arithmetic.select(a, one, zero)
        wide = t if t.bits >= 16 else checked_dtype("u16")
        value = self._emitter.compute(f"selp.{wide.name}", 1, 0, a)
        return value if wide is t else self._emitter.compute(f"cvt.{t.name}.{wide.name}", value)

    def _integer(self, a: Reg, t: DType, sat: bool) -> Reg:
        given = a.dtype
        if t.bits == given.bits and t.bits >= 16 and not sat:
            return self.view(a, t)
        return self._emitter.compute(
            f"cvt{'.sat' if sat else ''}.{t.name}.{given.name}", a, dtype=t
        )

    def _float_convert(self, a: Reg, t: DType, rnd: str, sat: bool, ftz: bool) -> Reg:
        given = a.dtype
        if given.name == "bf16" and t.name != "f32":
            return self.convert(self.convert(a, "f32"), t, rnd, sat=sat, ftz=ftz)
        if t.name == "bf16" and given.name not in ("f32",):
            if given.name != "f16":
                raise kernel_error(
                    f"{given.name} to bf16 would round twice", "convert to f32 explicitly first"
                )
            return self.convert(self.convert(a, "f32"), t, rnd, sat=sat)
        if t.name not in (*_NATIVE, "bf16", "tf32") and t.kind not in _INTEGER_KINDS:
            raise kernel_error(
                f"{given.name} can't be converted to {t.name}",
                "use an instruction: k.ptx.cvt",
            )
        words = [f".{_rounding(given, t, rnd)}", ".ftz" if ftz else "", ".sat" if sat else ""]
        return self._emitter.compute(
            f"cvt{''.join(w for w in words if w != '.')}.{t.name}.{given.name}", a, dtype=t
        )

    def view(self, a: Reg, dtype: str | DType) -> Reg:
        """The bits of ``a`` as a type of the same size: a move if the register class changes, else
        the same register. A view of a variable changes with it.
        """
        t = checked_dtype(dtype)
        if t.bits != a.dtype.bits or "pred" in (t.name, a.dtype.name):
            what = f"a view must have the same size, got {a.dtype.name} as {t.name}"
            raise kernel_error(what, ".to converts the value")
        if CLASSES[t.name] == CLASSES[a.dtype.name]:
            return type(a)(a.k, t, a.operand)
        return self._emitter.compute(f"mov.b{t.bits}", a, dtype=t)

    def pack(self, dtype: str | DType, low: Any, high: Any, *, rnd: str = "rn") -> Reg:
        """Pack two halves (f16 → f16x2), or round and pack two f32 (``cvt.rn.f16x2.f32``)."""
        t = checked_dtype(dtype)
        pair = [v.dtype for v in (low, high) if isinstance(v, Reg)]
        if t.name in ("f16x2", "bf16x2") and all(p.name == "f32" for p in pair):
            return self._emitter.compute(f"cvt.{rnd}.{t.name}.f32", high, low, dtype=t)
        half = t.element or f"b{t.bits // 2}"
        if any(2 * p.bits != t.bits for p in pair):
            given = " and ".join(p.name for p in pair)
            raise kernel_error(f"{t.name} must be packed from two {half}, got {given}")
        return self._emitter.compute(f"mov.b{t.bits}", [low, high], dtype=t)

    def unpack(self, a: Reg, dtype: str | DType | None = None) -> tuple[Reg, Reg]:
        """The low and the high half of a register, of type ``dtype`` (f16x2 → f16, b32 → b16)."""
        t = checked_dtype(dtype or a.dtype.element or f"b{a.dtype.bits // 2}")
        low, high = self._emitter.emit(f"mov.b{a.dtype.bits}", a, dtype=t, vector=2)
        return low, high


def _rounding(given: DType, t: DType, rnd: str) -> str:
    """The rounding modifier of a conversion; empty if it is exact."""
    if t.kind in _INTEGER_KINDS:
        return f"{rnd or 'rz'}i"
    if given.kind in _INTEGER_KINDS or t.bits < given.bits or t.name == "bf16":
        return rnd or "rn"
    return "rna" if t.name == "tf32" else ""
