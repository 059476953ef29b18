"""The print buffer of a launch. When the launch ends, it is written to Python's ``stdout``, in an
order that does not depend on the number of cores.

Like a GPU's buffer it holds one mebibyte; older output is lost, and a note says so.
"""

from __future__ import annotations

import sys
import threading

LIMIT = 1 << 20  # bytes; the default of a GPU


class PrintBuffer:
    """Texts by the share of CTAs that printed them. Safe to use from several threads."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.texts: dict[int, list[bytes]] = {}
        self.held = self.lost = 0

    def add(self, share: int, text: bytes) -> None:
        """Append a text. ``share``: the first CTA of the share that printed it."""
        with self.lock:
            self.texts.setdefault(share, []).append(text)
            self.held += len(text)
            if self.held > 2 * LIMIT:
                self._trim()

    def _trim(self) -> None:
        """Drop all texts but the last ones that fit. Texts that are dropped now would be dropped at
        the end too, since later additions only push them further out.
        """
        free = LIMIT
        for share in sorted(self.texts, reverse=True):
            texts = self.texts[share]
            first = len(texts)
            while first and len(texts[first - 1]) <= free:
                first -= 1
                free -= len(texts[first])
            self.lost += first
            del texts[:first]
            free = 0 if first else free
        self.held = sum(len(t) for texts in self.texts.values() for t in texts)

    def flush(self, last: int | None = None) -> None:
        """Write the output and clear it. ``last``: the last share to write, if a share failed."""
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
