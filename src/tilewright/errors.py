"""The exceptions of the package, with source locations and hints.

An error prints what was expected and what was got, and the source line with a caret under the
column. Errors also derive from the built-in exception that fits (ValueError, TypeError,
ImportError).
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

_OWN = str(Path(__file__).parent) + os.sep


def warn(text: str, category: type[Warning]) -> None:
    """Issue a warning for the caller's line: the first frame outside of the package."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OWN):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A position in a source text: 1-based line and column, the line's text, and its file."""

    file: str = "<ptx>"
    line: int = 0
    column: int = 0
    text: str = ""
    width: int = 1

    @classmethod
    def at(cls, source: str, offset: int, file: str = "<ptx>", width: int = 1) -> SourceLocation:
        """The location of the character ``source[offset]``."""
        start = source.rfind("\n", 0, offset) + 1
        end = source.find("\n", offset)
        text = source[start : end if end >= 0 else len(source)]
        return cls(file, source.count("\n", 0, offset) + 1, offset - start + 1, text, width)

    def __str__(self) -> str:
        line = f"{self.file}:{self.line}"
        return f"{line}:{self.column}" if self.column else line

    def picture(self) -> str:
        """The source line with a caret under the column, empty if the text is unknown. Control
        characters are replaced.
        """
        if not self.text:
            return ""
        lead = "".join(c if c == "\t" else " " for c in self.text[: max(self.column - 1, 0)])
        shown = "".join(c if c == "\t" or c.isprintable() else "\ufffd" for c in self.text)
        return f"    {shown}\n    {lead}{'^' * max(1, self.width)}"


class TilewrightError(Exception):
    """Base of the errors that tilewright raises for mistakes of the user and failures of devices.

    ``location`` is the location in the PTX or Python source, ``hint`` a suggestion to fix it.
    """

    def __init__(
        self, message: str, *, location: SourceLocation | None = None, hint: str = ""
    ) -> None:
        super().__init__(message)
        self.message = message
        self.location = location
        self.hint = hint

    def __str__(self) -> str:
        lines = [self.message if self.location is None else f"{self.location}: {self.message}"]
        if self.location is not None and self.location.text:
            lines.append(self.location.picture())
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


P = ParamSpec("P")
R = TypeVar("R")


def raises(kind: type[TilewrightError]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator of a public function: built-in exceptions caused by unsupported arguments become
    errors of this ``kind``.
    """

    def around(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except TilewrightError:
                raise
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
                given = ", ".join(f"{x!r:.60}" for x in args)
                raise kind(f"{function.__name__}({given}): {error}") from error

        return checked

    return around


class LayoutError(TilewrightError, ValueError):
    """An invalid or incompatible layout, shape, stride, coordinate or tiler."""


class MetadataError(LayoutError):
    """Invalid sparse metadata, or a matrix with more nonzero elements than the pattern allows."""


class DtypeError(TilewrightError, TypeError):
    """A number format that is unknown, or that the operation does not support."""


class TargetError(TilewrightError, ValueError):
    """An architecture or PTX version that is unknown or too old."""


class SassError(TilewrightError, ValueError):
    """Machine code (SASS) or its text that can't be read, written or encoded."""


class CubinError(SassError):
    """A cubin that is malformed, or an edit of it that can't be done."""


class PtxError(TilewrightError, ValueError):
    """An error in PTX text or in a PTX module."""


class PtxSyntaxError(PtxError):
    """PTX text that can't be parsed."""


class UnknownInstruction(PtxError):
    """An opcode (mnemonic with modifiers) that is not in the instruction table."""


class PtxCheckError(PtxError):
    """A well-formed instruction that breaks a rule: operands, types, version, target, scope."""


class KernelError(TilewrightError, ValueError):
    """An operation in a kernel function that the builder can't compile."""


class UnknownName(KernelError, AttributeError):
    """A name that the builder does not have."""


class ProblemError(TilewrightError, ValueError):
    """Invalid operands of a matrix multiplication: rank, shape, ``out``, overlap."""


class EpilogueError(TilewrightError, ValueError):
    """An epilogue function that cannot be traced or fused."""


class ConfigError(TilewrightError, ValueError):
    """A kernel configuration that does not fit the problem or the target."""


class ResultError(TilewrightError, ValueError):
    """Tuning results that are missing or can't be read."""


class LaunchError(TilewrightError, ValueError):
    """A launch with an invalid grid, block, shared memory size or arguments."""


class DeviceError(TilewrightError, RuntimeError):
    """A device that is missing, of the wrong kind, or failed."""


class CudaError(DeviceError):
    """An error of the CUDA driver or of nvJitLink; ``code`` is its number, ``name`` its name.
    ``fatal``: a kernel's fault has made the GPU unusable for this process.
    """

    def __init__(
        self, message: str, *, code: int = 0, name: str = "", fatal: bool = False, **where: object
    ) -> None:
        super().__init__(message, **where)  # type: ignore[arg-type]
        self.code = code
        self.name = name
        self.fatal = fatal


class VmFault(DeviceError):
    """A kernel on the virtual machine performed an operation that faults, or is undefined, on
    hardware.

    ``kind`` is a short name (``out of bounds``, ``misaligned``, ``deadlock``, …); ``address`` the
    address, ``thread`` the (x, y, z) thread index and ``block`` the (x, y, z) CTA index, if known.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str,
        address: int | None = None,
        thread: tuple[int, int, int] | None = None,
        block: tuple[int, int, int] | None = None,
        location: SourceLocation | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message, location=location, hint=hint)
        self.kind = kind
        self.address = address
        self.thread = thread
        self.block = block


class MissingPackage(TilewrightError, ImportError):
    """An optional package that is not installed; the message says what to install."""
