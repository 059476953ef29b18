"""``printf`` formats: their conversions, and the layout of ``vprintf``'s argument buffer.

A format is text and conversions (``%-8.3f``). Each conversion takes an argument with C's default
promotions: ``b32`` for integers up to 32 bits, ``b64`` for longer ones and addresses, ``f64`` for
floats. Each argument is stored at its own alignment. The virtual machine prints all of them as C
does; CUDA's driver prints a precision of ``*`` and lengths not in ``LENGTHS`` wrongly, so
``k.print`` rejects them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from ..errors import PtxError
from .types import bits

INTEGER, CHARACTER, FLOAT, TEXT, ADDRESS = "diouxX", "c", "eEfFgGaA", "s", "p"
MAX_ARGUMENTS = 32  # CUDA's limit
INT_MAX = 2**31 - 1  # a width and a precision are C's ints
LENGTHS = ("", "h", "l", "ll")  # that CUDA documents; an H200 gets the arguments of hh j z t wrong

_CONVERSION = re.compile(
    rb"%(?P<flags>[-+ #0]*)(?P<width>\*|\d*)(?:\.(?P<precision>\*|\d*))?"
    rb"(?P<length>hh|h|ll|l|j|z|t|L)?(?P<letter>[a-zA-Z%])"
)
_LONG = ("l", "ll", "j", "z", "t")


@dataclass(frozen=True, slots=True)
class Conversion:
    """``%[flags][width][.precision][length]letter``. ``width`` and ``precision`` are digits or
    ``*``; ``precision`` is None if there is no ``.``.
    """

    flags: str
    width: str
    precision: str | None
    length: str
    letter: str

    def __str__(self) -> str:
        precision = "" if self.precision is None else f".{self.precision}"
        return f"%{self.flags}{self.width}{precision}{self.length}{self.letter}"

    @property
    def type(self) -> str:
        """The type of the argument in memory."""
        if self.letter in FLOAT:
            return "f64"
        long = self.length in _LONG and self.letter in INTEGER
        return "b64" if long or self.letter in (TEXT, ADDRESS) else "b32"

    @property
    def types(self) -> tuple[str, ...]:
        """The types of all its arguments: one for each ``*``, then the value's."""
        return (*("b32" for field in (self.width, self.precision) if field == "*"), self.type)


FormatItem = bytes | Conversion


@lru_cache(maxsize=256)
def parse_format(format_: bytes) -> tuple[FormatItem, ...]:
    """Split a format into text and conversions (``%%`` is text). PtxError for an invalid one."""
    found: list[FormatItem] = []
    end = 0
    while (at := format_.find(b"%", end)) >= 0:
        match = _CONVERSION.match(format_, at)
        letter = match["letter"].decode() if match else ""
        if match is None or letter not in INTEGER + CHARACTER + FLOAT + TEXT + ADDRESS + "%":
            text = format_[at : at + 8].decode(errors="replace")
            hint = "conversions are d i o u x X c s p e E f F g G a A; %% is a percent sign"
            raise PtxError(f"invalid conversion {text!r} at byte {at} of a format", hint=hint)
        found.append(format_[end:at])
        flags, width, length = ((match[n] or b"").decode() for n in ("flags", "width", "length"))
        precision = match["precision"]
        digits_or_none = None if precision is None else precision.decode()
        for name, digits in (("width", width), ("precision", digits_or_none or "")):
            if digits not in ("", "*") and (len(digits) > 10 or int(digits) > INT_MAX):
                raise PtxError(f"the {name} at byte {at} of a format must be at most {INT_MAX}")
        found.append(
            b"%" if letter == "%" else Conversion(flags, width, digits_or_none, length, letter)
        )
        end = match.end()
    return tuple(item for item in (*found, format_[end:]) if item)


def argument_types(format_: Sequence[FormatItem]) -> tuple[str, ...]:
    """The types of a format's arguments in memory."""
    return tuple(t for item in format_ if isinstance(item, Conversion) for t in item.types)


def offsets(types: Sequence[str]) -> tuple[tuple[int, ...], int]:
    """The byte offset of each argument, and the size of the buffer."""
    found: list[int] = []
    end = 0
    for type_ in types:
        size = bits(type_) // 8
        found.append(-(-end // size) * size)
        end = found[-1] + size
    return tuple(found), end
