"""Kernel parameters, declared once as the fields of a dataclass.

The fields give the PTX signature, the values that the traced kernel receives (an instance of the
class), the layout of the parameter block, and the slots where a call writes addresses:

    @dataclass(frozen=True)
    class CounterParameters(KernelParameters):
        counter: Reg = parameter("u64", address="w")
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import Field, dataclass, field, fields
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from ..builder import Builder, Traced, kernel_parameters
from ..builder.kernel_function import trace_declared
from ..ptx.parameter_block import ParameterLayout
from .kernel_launch import ADDRESS_BYTES, MATRICES, KernelArguments

TENSOR_MAP = "bytes 128 align 64"
EMPTY_MAP = bytes(128)

P = TypeVar("P", bound="KernelParameters")


def parameter(type_: str, *, address: str = "") -> Any:
    """Declare a parameter. ``address``: the matrix (``a`` … ``d``, ``w`` for the workspace, ``x0``
    and so on for arrays of an epilogue) whose address a call writes into it, or into the first
    eight bytes of a tensor map. A parameter ``name`` with a ``name_ptr`` is a scale factor.
    """
    return field(metadata={"type": type_, "address": address})


@dataclass(frozen=True)
class KernelParameters:
    """Base of the parameters of a kernel."""

    @classmethod
    def types(cls, scalar_type: str = "f32") -> dict[str, str]:
        """The type of each parameter; α and β have ``scalar_type``."""
        scalars = {"alpha": scalar_type, "beta": scalar_type}
        return {f.name: scalars.get(f.name, f.metadata["type"]) for f in _declared(cls)}

    @classmethod
    def trace(
        cls: type[P],
        kernel: Callable[[Builder, P], None],
        name: str,
        scalar_type: str = "f32",
        **bounds: int,
    ) -> Traced:
        """Trace a kernel with these parameters. ``bounds``: its launch bounds."""

        def function(k: Builder, *values: Any) -> None:
            kernel(k, cls(*values))

        return trace_declared(function, cls.types(scalar_type), name=name, lines=False, **bounds)

    @classmethod
    def pack(
        cls,
        values: Mapping[str, object],
        scalar_type: str = "f32",
        without_address: Collection[str] = (),
    ) -> KernelArguments:
        """The parameter block with these values, 0 where there is none. No address is written into
        the parameters ``without_address``.
        """
        key: Any = cls  # mypy holds a class for unhashable
        block = _block(key, scalar_type)
        return KernelArguments(
            block.layout.pack([values.get(name, empty) for name, empty in block.empty.items()]),
            tuple((word, i) for name, word, i in block.addressed if name not in without_address),
            block.scalars,
            block.scalar_type,
        )


class _Block(NamedTuple):
    """The parameter block of a class: its layout; by name what an absent value is; (name, word,
    index in ``MATRICES``) of each address; offsets of scale factors and of their pointers.
    """

    layout: ParameterLayout
    empty: Mapping[str, object]
    addressed: tuple[tuple[str, int, int], ...]
    scalars: tuple[tuple[int, int], ...]
    scalar_type: str


@lru_cache(maxsize=256)
def _block(cls: Any, scalar_type: str) -> _Block:
    types = cls.types(scalar_type)
    layout = kernel_parameters.block(types)
    offsets = {n: p.offset for n, p in zip(types, layout.parameters, strict=True)}
    addressed = (
        (f.name, offsets[f.name] // ADDRESS_BYTES, i)
        for i, matrix in enumerate(MATRICES)
        for f in _declared(cls)
        if f.metadata["address"] == matrix
    )
    scalars = ((offsets[n], offsets[f"{n}_ptr"]) for n in offsets if f"{n}_ptr" in offsets)
    empty = {name: EMPTY_MAP if type_ == TENSOR_MAP else 0 for name, type_ in types.items()}
    return _Block(layout, empty, tuple(addressed), tuple(scalars), types.get("alpha", "f32"))


def _declared(cls: type[KernelParameters]) -> tuple[Field[Any], ...]:
    return fields(cls)
