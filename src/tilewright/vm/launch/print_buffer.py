"""What a launch prints: kept until it ends, in an order that no number of cores changes, then
written to Python's ``stdout``.

Like a GPU's buffer it holds a megabyte; what is older is lost, and a note says so.
"""

from __future__ import annotations

import sys
import threading

LIMIT = 1 << 20  # bytes, as a GPU's by default


class PrintBuffer:
    """Texts by the share of CTAs that printed them. Several threads may add to it at once."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.texts: dict[int, list[bytes]] = {}
        self.held = self.lost = 0

    def add(self, share: int, text: bytes) -> None:
        """``share``: the first CTA of those that one thread runs one after the other."""
        with self.lock:
            self.texts.setdefault(share, []).append(text)
            self.held += len(text)
            if self.held > 2 * LIMIT:
                self._trim()

    def _trim(self) -> None:
        """Keep the last texts that fit; what is added later only moves the others further out."""
        room = LIMIT
        for share in sorted(self.texts, reverse=True):
            texts = self.texts[share]
            kept = len(texts)
            while kept and len(texts[kept - 1]) <= room:
                kept -= 1
                room -= len(texts[kept])
            self.lost += kept
            del texts[:kept]
            room = 0 if kept else room
        self.held = sum(len(t) for texts in self.texts.values() for t in texts)

    def flush(self, last: int | None = None) -> None:
        """Write what was printed; ``last`` is the last share that counts, where one failed."""
        with self.lock:
            if self.held > LIMIT:
                self._trim()
            shares = sorted(s for s in self.texts if last is None or s <= last)
            text = b"".join(t for s in shares for t in self.texts[s]).decode(errors="replace")
            lost = self.lost
            self.texts, self.held, self.lost = {}, 0, 0
        if sys.stdout is not None and text:
            if lost:
                note = f"… {lost} older prints are lost: a launch keeps the last {LIMIT} bytes\n"
                sys.stdout.write(note)
            sys.stdout.write(text)
            sys.stdout.flush()
