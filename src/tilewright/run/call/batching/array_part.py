"""``ArrayPart``: a part of an array of any library, as an array of a call."""

from __future__ import annotations

from typing import Any, NoReturn

from ...arrays.array_view import ArrayView


class ArrayPart:
    """The part of an array that a view describes; the view's owner is the array."""

    def __init__(self, view: ArrayView) -> None:
        self.part, self.shape = view, view.shape

    @property
    def array(self) -> Any:
        """The whole array."""
        return self.part.owner

    def __dlpack__(self, **_: Any) -> NoReturn:
        raise BufferError("a part of an array is for tilewright alone")
