"""Code from a listing of cuobjdump (``-sass``) or nvdisasm (``-hex -c``), by the words in its
comments: maxas' ``--test`` and ``--sass`` take such files too.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from ...errors import SassError
from ..encoding_table import encoded_as

_FUNCTION = re.compile(r"^\s*(?:Function : (\S+)|\.section\s+\.text\.([^,\s]+))")
_WORD = re.compile(r"/\*\s*0x([0-9a-f]{16})\s*\*/\s*$")
_ARCH = re.compile(r"\bsm_(\d{2,3})|\bEF_CUDA_SM(\d{2,3})\b")
_FIRST_128_BIT = 70


@dataclass(frozen=True)
class SassDump:
    """The code of each function of a listing; ``sm`` is the architecture of its encodings."""

    sm: int
    codes: dict[str, bytes]

    @classmethod
    def parse(cls, text: str) -> SassDump:
        """Read a listing. Raises SassError for one without an architecture or without words, and
        for a function that is not whole instructions.
        """
        arch = _ARCH.search(text)
        words: dict[str, list[int]] = {}
        name = "kernel"
        for line in text.splitlines():
            if function := _FUNCTION.match(line):
                name = function[1] or function[2]
            elif word := _WORD.search(line):
                words.setdefault(name, []).append(int(word[1], 16))
        if arch is None or not words:
            raise SassError(
                "a listing must have an architecture (sm_…) and words in hex, got neither or one",
                hint="use cuobjdump -sass, or nvdisasm -hex -c",
            )
        sm = encoded_as(int(arch[1] or arch[2]))
        group = 2 if sm >= _FIRST_128_BIT else 4
        for function_name, found in words.items():
            if len(found) % group:
                raise SassError(
                    f"{function_name} must have a multiple of {group} words, got {len(found)}"
                )
        return cls(sm, {n: struct.pack(f"<{len(w)}Q", *w) for n, w in words.items()})

    @property
    def functions(self) -> tuple[str, ...]:
        """The names of the functions."""
        return tuple(self.codes)

    @property
    def instruction_size(self) -> int:
        """Bytes per instruction."""
        return 16 if self.sm >= _FIRST_128_BIT else 8

    def code(self, name: str) -> bytes:
        """A function's code. Raises SassError for an unknown name."""
        if name not in self.codes:
            known = ", ".join(self.functions[:8])
            raise SassError(f"a function must be in the listing, got {name!r}; it has: {known}")
        return self.codes[name]
