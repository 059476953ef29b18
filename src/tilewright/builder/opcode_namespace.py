"""Every instruction by its name: ``k.ptx.mad.lo.s32(a, b, c)``.

Attributes spell the opcode's words. Append an underscore to a Python keyword (``global_``,
``async_``, ``and_``), prepend one to a digit (``_2d``), and write two underscores for ``::``
(``shared__cluster``). A call is ``k.emit`` of the opcode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .emitter import Emitter


class Opcode:
    """An opcode being spelled. Call it to emit it, with the arguments of ``Emitter.emit``."""

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
