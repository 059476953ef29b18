"""Annotations of a kernel's parameters.

    def saxpy(k: Builder, n: u32, a: f32, x: ptr[f32], y: ptr[f32]) -> None: …

When a kernel is traced, ``u32`` is a number format and ``ptr[f32]`` a ``Param``. For a type checker
they are the types of the values in the kernel: ``Reg``, and a ``Pointer``. Other specifications are
metadata: ``x: Annotated[Pointer, ptr(f32, align=16)]``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from ..dtypes import DTYPES, DType
from .kernel_parameters import Param, pointer_parameter
from .values.pointer import Pointer
from .values.registers import Reg

Format = TypeVar("Format")

if TYPE_CHECKING:
    u32: TypeAlias = Reg
    u64: TypeAlias = Reg
    s32: TypeAlias = Reg
    s64: TypeAlias = Reg
    f16: TypeAlias = Reg
    bf16: TypeAlias = Reg
    f32: TypeAlias = Reg
    f64: TypeAlias = Reg

    class ptr(Pointer, Generic[Format]):
        """A pointer parameter; ``align`` is the caller's promise, in bytes."""

        def __init__(
            self, to: str | DType | type[Reg], *, align: int | None = None, space: str = "global"
        ) -> None: ...

else:
    u32, u64, s32, s64 = (DTYPES[name] for name in ("u32", "u64", "s32", "s64"))
    f16, bf16, f32, f64 = (DTYPES[name] for name in ("f16", "bf16", "f32", "f64"))

    class _PointerAnnotation:
        """``ptr[f32]``, or ``ptr(f32, align=16)``."""

        def __getitem__(self, to: str | DType) -> Param:
            return pointer_parameter(to)

        def __call__(
            self, to: str | DType, *, align: int | None = None, space: str = "global"
        ) -> Param:
            return pointer_parameter(to, align=align, space=space)

    ptr = _PointerAnnotation()
