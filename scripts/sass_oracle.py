"""nvdisasm's raw mode as an oracle: the text of arbitrary instruction words, in large batches.

An illegal word makes nvdisasm print only the addresses of all illegal words, so these are replaced
and the batch is asked again.
"""

from __future__ import annotations

import re
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tilewright.sass.encoding import MAXWELL, VOLTA, SassCoding

BATCH = 49_998  # words per call, a multiple of 3
_LINE = re.compile(r"/\*([0-9a-f]+)\*/(.+)")
_ILLEGAL = re.compile(r"at address (0x[0-9a-f]+)")
# Control of a word under test: stall 1 or more, no yield, no barriers, nothing waited for.
PLAIN = 0x7F1
VOLTA_CONTROL = PLAIN << 105


@dataclass(frozen=True)
class Oracle:
    """``ask`` returns (offset, text) of each word, None for an illegal one; ``asked`` counts."""

    path: str
    arch: str  # as nvdisasm's -b takes it: SM90a
    coding: SassCoding

    @classmethod
    def of(cls, path: str, arch: str) -> Oracle:
        number = int(re.sub(r"\D", "", arch))
        return cls(path, arch.replace("sm_", "SM"), VOLTA if number >= 70 else MAXWELL)

    @property
    def version(self) -> str:
        said = subprocess.run([self.path, "--version"], capture_output=True, text=True).stdout
        found = re.search(r"V(\d+\.\d+\.\d+)", said)
        return found[1] if found else ""

    def ask(self, words: Sequence[int], reuse: int = 0) -> list[tuple[int, str] | None]:
        """The texts of words. On sm_70 and later a word has its control bits; on sm_5x ``reuse``
        is the reuse field of all words.
        """
        found: list[tuple[int, str] | None] = []
        for start in range(0, len(words), BATCH):
            found += self._batch(list(words[start : start + BATCH]), reuse)
        return found

    def _batch(self, words: list[int], reuse: int) -> list[tuple[int, str] | None]:
        bad: set[int] = set()
        while True:
            text, errors = self._run(words, bad, reuse)
            new = {self._index(int(a, 16)) for a in _ILLEGAL.findall(errors)} - bad
            if not new:
                break
            bad |= new
        lines = {}
        for line in text.splitlines():
            if m := _LINE.match(line.strip()):
                lines[int(m[1], 16)] = m[2].partition(";")[0].strip(" \t{")
        offsets = [self._offset(i) for i in range(len(words))]
        return [
            None if i in bad or at not in lines else (at, lines[at]) for i, at in enumerate(offsets)
        ]

    def _offset(self, i: int) -> int:
        return 16 * i if self.coding is VOLTA else 32 * (i // 3) + 8 * (i % 3 + 1)

    def _index(self, offset: int) -> int:
        return offset // 16 if self.coding is VOLTA else offset // 32 * 3 + offset % 32 // 8 - 1

    def _run(self, words: list[int], bad: set[int], reuse: int) -> tuple[str, str]:
        if self.coding is VOLTA:
            nop = 0x7918 | VOLTA_CONTROL
            data = b"".join(
                (nop if i in bad else w).to_bytes(16, "little") for i, w in enumerate(words)
            )
        else:
            nop = 0x50B0000000070F00
            rows = [nop if i in bad else w for i, w in enumerate(words)]
            rows += [nop] * (-len(rows) % 3)
            control = sum((PLAIN | reuse << 17) << shift for shift in (0, 21, 42))
            data = b"".join(
                struct.pack("<4Q", control, *rows[i : i + 3]) for i in range(0, len(rows), 3)
            )
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "words.bin")
            file.write_bytes(data)
            command = [self.path, "-b", self.arch, "-ndf"]
            command += [] if self.coding is VOLTA else ["-novliw"]
            done = subprocess.run([*command, str(file)], capture_output=True, text=True)
        return done.stdout, done.stderr
