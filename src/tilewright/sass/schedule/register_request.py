"""A virtual register and where it may be allocated."""

from __future__ import annotations

from dataclasses import dataclass

VIRTUAL = 1000  # the first virtual register's number; the machine's end at 255


@dataclass(frozen=True, slots=True)
class RegisterRequest:
    """``name`` is allocated to a register of ``pool``, in ``bank`` if one is asked for.

    ``number`` is its virtual register. Requests with the same ``group`` that are used as a vector
    have numbers in a row and get registers in a row.
    """

    name: str
    number: int
    pool: tuple[int, ...]
    bank: int | None = None
    group: int = 0
