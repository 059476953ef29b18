"""Every instruction by its name: ``k.ptx.mad.lo.s32(a, b, c)``.

Attributes spell the opcode's words: a trailing underscore sets a Python keyword apart
(``global_``, ``async_``, ``and_``), a leading one a digit (``_2d``), two underscores are ``::``
(``shared__cluster``). Calling it is ``k.emit`` of the opcode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .emitter import Emitter


class Opcode:
    """An opcode being spelled; call it to emit it. Takes and returns what ``Emitter.emit`` does."""

    def __init__(self, k: Emitter, text: str = "") -> None:
        self._k = k
        self._text = text

    def __getattr__(self, name: str) -> Opcode:
        if name.startswith("__"):
            raise AttributeError(name)
        word = name.strip("_").replace("__", "::")
        longer = Opcode(self._k, f"{self._text}.{word}" if self._text else word)
        self.__dict__[name] = longer  # the next look-up is a plain attribute
        return longer

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._k.emit(self._text, *args, **options)

    def __repr__(self) -> str:
        return f"k.ptx: {self._text}"
