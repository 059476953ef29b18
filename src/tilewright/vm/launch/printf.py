"""Formats arguments as C's ``printf`` does, byte for byte.

Arguments are the bits in memory; ``ptx.printf_format`` defines the conversions.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence

from ...errors import PtxError
from ...ptx.printf_format import ADDRESS, CHARACTER, FLOAT, INTEGER, TEXT, Conversion, FormatItem
from .print_buffer import LIMIT

_LENGTHS = {"hh": 8, "h": 16, "": 32, "L": 32}
_BASES = {"o": "o", "x": "x", "X": "X", ADDRESS: "x"}
_FRACTION = 52  # bits of a double

Reader = Callable[[int, int], bytes]


def render(format_: Sequence[FormatItem], arguments: Sequence[int], text: Reader) -> bytes:
    """The formatted text. ``text(address, most)`` reads the string of a ``%s`` (``most`` −1: up to
    its 0 byte).

    Raises PtxError for a conversion that is longer than the print buffer.
    """
    remaining = iter(arguments)
    parts = (p if isinstance(p, bytes) else _converted(p, remaining, text) for p in format_)
    return b"".join(parts)


def _converted(c: Conversion, arguments: Iterator[int], text: Reader) -> bytes:
    flags, width = c.flags, _width_argument(c.width, arguments)
    precision = None if c.precision is None else _width_argument(c.precision, arguments)
    if width < 0:
        flags, width = flags + "-", -width
    if precision is not None and precision < 0:
        precision = None
    longest = max(width, 0 if c.letter == TEXT else precision or 0)
    if longest > LIMIT:
        raise PtxError(f"{c} makes {longest} characters; the print buffer holds {LIMIT}")
    value = next(arguments)
    prefix, body, zeros = "", b"", False
    if c.letter == TEXT:
        body = _text(value, precision, text)
    elif c.letter == CHARACTER:
        body = bytes([value & 255])
    elif c.letter == ADDRESS and not value:
        body = b"(nil)"
    elif c.letter in FLOAT:
        prefix, digits = _float(c.letter, flags, precision, value)
        body, zeros = digits.encode(), digits.lower() not in ("inf", "nan")
    else:
        prefix, digits = _whole(c, flags, precision, value)
        body, zeros = digits.encode(), precision is None
    return _padded(prefix, body, width, "-" in flags, zeros and "0" in flags)


def _text(address: int, precision: int | None, text: Reader) -> bytes:
    if address:
        return text(address, -1 if precision is None else precision)
    return b"(null)" if precision is None or precision >= len("(null)") else b""


def _width_argument(digits: str, arguments: Iterator[int]) -> int:
    """A width or precision: its digits (none: 0), or for ``*`` the next argument."""
    return _signed(next(arguments), 32) if digits == "*" else int(digits or 0)


def _signed(value: int, width: int) -> int:
    value &= (1 << width) - 1
    return value - (value >> width - 1 << width)


def _padded(prefix: str, body: bytes, width: int, left: bool, zeros: bool) -> bytes:
    """Pad to ``width``: zeros go after the prefix (sign, 0x), spaces before it."""
    head = prefix.encode()
    missing = width - len(head) - len(body)
    if left:
        return head + body + b" " * missing
    return head + b"0" * missing + body if zeros else b" " * missing + head + body


def _sign(negative: bool, flags: str) -> str:
    return "-" if negative else "+" if "+" in flags else " " if " " in flags else ""


def _whole(c: Conversion, flags: str, precision: int | None, value: int) -> tuple[str, str]:
    """Sign or 0x, and digits, of an integer or an address."""
    width = _LENGTHS.get(c.length, 64) if c.letter in INTEGER else 64
    signed = c.letter in "di"
    number = _signed(value, width) if signed else value & (1 << width) - 1
    prefix = _sign(number < 0, flags) if signed or c.letter == ADDRESS else ""
    digits = format(abs(number), _BASES.get(c.letter, "d"))
    digits = "" if precision == 0 and number == 0 else digits.zfill(precision or 0)
    if "#" in flags and c.letter == "o" and not digits.startswith("0"):
        digits = "0" + digits
    if c.letter == ADDRESS or ("#" in flags and c.letter in "xX" and number):
        prefix += "0X" if c.letter == "X" else "0x"
    return prefix, digits


def _float(letter: str, flags: str, precision: int | None, bits: int) -> tuple[str, str]:
    """Sign (of ``%a``, with 0x) and digits of a double."""
    number: float = struct.unpack("<d", (bits & (1 << 63) - 1).to_bytes(8, "little"))[0]
    sign = _sign(bool(bits >> 63), flags)
    small, alternate = letter.lower(), "#" * ("#" in flags)
    if number - number != 0:
        digits = format(number, "f")
    elif small == "a":
        digits, sign = _hexadecimal(number, precision, bool(alternate)), sign + "0x"
    else:
        digits = format(number, f"{alternate}.{6 if precision is None else precision}{small}")
    return (sign.upper(), digits.upper()) if letter.isupper() else (sign, digits)


def _hexadecimal(number: float, precision: int | None, point: bool) -> str:
    """``1.8p+0``: the shortest exact digits, or ``precision`` digits, rounded to nearest even."""
    (bits,) = struct.unpack("<Q", struct.pack("<d", number))
    exponent, fraction = bits >> _FRACTION, bits & (1 << _FRACTION) - 1
    power = 0 if not bits else exponent - 1023 if exponent else -1022
    whole = (1 << _FRACTION if exponent else 0) | fraction
    count = 13 if precision is None else precision
    if count < 13:
        dropped = 4 * (13 - count)
        low, whole = whole & (1 << dropped) - 1, whole >> dropped
        half = 1 << dropped - 1
        whole += low > half or (low == half and whole & 1)
    exact = min(count, 13)
    digits = format(whole & (1 << 4 * exact) - 1, f"0{exact}x") if exact else ""
    digits = digits.rstrip("0") if precision is None else digits.ljust(count, "0")
    dot = "." if digits or point else ""
    return f"{whole >> 4 * exact}{dot}{digits}p{power:+d}"
