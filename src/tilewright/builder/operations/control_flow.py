"""Control flow: loops and branches as Python's ``for`` and ``with``.

The kernel function runs once, so a Python ``for`` unrolls; ``k.range`` makes a loop on the device
unless ``unroll=True``. A branch is a ``with`` block with a predicate.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from ...dtypes import DType
from ...errors import KernelError
from ...ptx import tree
from ..emitter import Emitter
from ..operations.variables import Variables
from ..source_location import current_location, kernel_error
from ..values.register_class import checked_dtype
from ..values.registers import Reg, is_integer
from .arithmetic import ArithmeticOperations


class ControlFlow:
    """Loops, branches and the kernel's end."""

    def __init__(
        self, emitter: Emitter, variables: Variables, arithmetic: ArithmeticOperations
    ) -> None:
        self._emitter = emitter
        self._variables = variables
        self._arithmetic = arithmetic
        self._loops: list[tuple[str, str]] = []  # labels: (continue, break)
        self._after_if: tuple[Any, tree.Statement | None] = (None, None)

    @property
    def in_loop(self) -> bool:
        """Whether the current position is inside a loop on the device."""
        return bool(self._loops)

    # --- loops ---
    def range(
        self, lo: Any, hi: Any = None, step: Any = 1, *, unroll: bool | None = None, dtype: str = ""
    ) -> Iterator[Any]:
        """``for i in k.range(lo, hi, step)``, or ``k.range(hi)``: a loop on the device; ``i`` is a
        register.

        Its type is ``dtype``, else that of the bounds, else u32. A static step may be negative for
        signed types; ``hi + step`` must not overflow. A variable ``hi`` or ``step`` is read in each
        iteration; pass ``k.mov(n)`` to read it once. ``unroll=True`` requires static bounds and
        traces the body for each value, with ``i`` a Python int; ``unroll=False`` forbids ptxas to
        unroll. Leave the loop with ``k.break_()``, not with ``break``.
        """
        lo, hi = (0, lo) if hi is None else (lo, hi)
        for value in (lo, hi, step):
            if not isinstance(value, Reg) and not is_integer(value):
                raise kernel_error(f"loop bounds must be integers or registers, got {value!r}")
        if not isinstance(step, Reg) and step == 0:
            raise kernel_error(
                "the step of a loop must not be 0", "k.while_ loops until a condition is false"
            )
        if unroll:
            return self._unrolled(lo, hi, step)
        return self._loop(lo, hi, step, self._loop_type(lo, hi, step, dtype), unroll)

    def _unrolled(self, lo: Any, hi: Any, step: Any) -> Iterator[int]:
        for value in (lo, hi, step):
            if isinstance(value, Reg):
                raise kernel_error(f"bounds must be static for unroll=True, got {value!r}")
        return iter(range(lo, hi, step))

    def _loop_type(self, lo: Any, hi: Any, step: Any, dtype: str) -> DType:
        regs = [v for v in (lo, hi, step) if isinstance(v, Reg)]
        t = (
            checked_dtype(dtype)
            if dtype
            else regs[0].dtype
            if regs
            else checked_dtype("u32" if step > 0 and lo >= 0 else "s32")
        )
        if t.kind not in ("int", "uint") or t.bits < 16:
            raise kernel_error(f"the type of a loop must be an integer type, got {t.name}")
        for reg in regs:
            if reg.dtype is not t:
                raise kernel_error(
                    f"the bounds of a loop must be {t.name}, got {reg.dtype.name}",
                    f".to({t.name!r})",
                )
        if not isinstance(step, Reg) and step < 0 and t.kind == "uint":
            raise kernel_error(
                f"the step of a {t.name} loop must be positive, got {step}",
                "count down with a signed type",
            )
        return t

    def _loop(self, lo: Any, hi: Any, step: Any, t: DType, unroll: bool | None) -> Iterator[Reg]:
        self.check_unguarded("a loop")
        down = not isinstance(step, Reg) and step < 0
        i = self._variables.var(t, lo)
        again, done, top = (
            self._emitter.label("next"),
            self._emitter.label("done"),
            self._emitter.label("loop"),
        )
        if isinstance(lo, Reg) or isinstance(hi, Reg):
            self.branch(self._arithmetic.compare("le" if down else "ge", i, hi), done)
        elif not range(lo, hi, step):
            self.branch(None, done)
        self._emitter.place_label(top)
        if unroll is False:
            self._emitter.body.append(tree.Directive("pragma", ('"nounroll"',)))
        self._loops.append((again, done))
        try:
            with self._emitter.scope():
                yield Reg(i.k, t, i.operand)
        except GeneratorExit:
            self._break(
                "Python's break, return or an exception left a loop on the device",
                "k.break_() leaves the loop; unroll=True makes it a Python loop",
            )
            raise
        self._loops.pop()
        self._emitter.place_label(again)
        self._arithmetic.add(i, step, into=i)
        self.branch(self._arithmetic.compare("gt" if down else "lt", i, hi), top)
        self._emitter.place_label(done)

    @contextmanager
    def while_(self, condition: Any) -> Iterator[None]:
        """``with k.while_(lambda: i < n)``: the condition is evaluated before each iteration."""
        if not callable(condition):
            what = f"the condition of k.while_ must be a function, got {condition!r:.60}"
            raise kernel_error(what, "with k.while_(lambda: i < n)")
        self.check_unguarded("a loop")
        top, done = self._emitter.label("while"), self._emitter.label("done")
        self._emitter.place_label(top)
        self.branch(condition(), done, negated=True)
        self._loops.append((top, done))
        with self._closed("k.while_"):
            yield
        self._loops.pop()
        self.branch(None, top)
        self._emitter.place_label(done)

    def break_(self, when: Any = None) -> None:
        """Leave the innermost loop on the device, if ``when`` is true."""
        self._leave("k.break_()", 1, when)

    def continue_(self, when: Any = None) -> None:
        """Continue with the next iteration of the innermost loop, if ``when`` is true."""
        self._leave("k.continue_()", 0, when)

    def _leave(self, what: str, which: int, when: Any) -> None:
        if not self._loops:
            raise kernel_error(f"{what} must be inside a loop on the device")
        if when is None or isinstance(when, Reg):
            self.branch(when, self._loops[-1][which])
        elif self._emitter.static_condition(when):
            self.branch(None, self._loops[-1][which])

    # --- branches ---
    @contextmanager
    def if_(self, p: Any) -> Iterator[None]:
        """A branch; ``with k.else_():`` may follow. A Python bool is evaluated at trace time."""
        if not isinstance(p, Reg):
            with self._emitter.static_branch(p):
                yield
            self._after_if = (
                self._emitter.static_condition(p),
                self._emitter.body[-1] if self._emitter.body else None,
            )
            return
        self.check_unguarded("a branch")
        otherwise = self._emitter.label("else")
        self.branch(p, otherwise, negated=True)
        with self._closed("k.if_"):
            yield
        self._emitter.place_label(otherwise)
        self._after_if = (otherwise, self._emitter.body[-1])

    @contextmanager
    def else_(self) -> Iterator[None]:
        """The else branch of the preceding ``k.if_``."""
        taken, last = self._after_if
        if taken is None or (self._emitter.body[-1] if self._emitter.body else None) is not last:
            raise kernel_error("k.else_() must directly follow its k.if_")
        self._after_if = (None, None)
        if isinstance(taken, bool):
            with self._emitter.static_branch(not taken):
                yield
            return
        end = self._emitter.label("endif")
        self._emitter.body.pop()
        self.branch(None, end)
        self._emitter.place_label(taken)
        with self._closed("k.else_"):
            yield
        self._emitter.place_label(end)

    @contextmanager
    def _closed(self, what: str) -> Iterator[None]:
        """A block that must not be left by an exception: that invalidates the trace."""
        try:
            with self._emitter.scope():
                yield
        except BaseException as error:
            if self._emitter.failure is None:
                self._break(
                    f"{type(error).__name__} left a {what} block", "raise it outside of the block"
                )
            raise

    def ret(self, when: Any = None) -> None:
        """Exit this thread, if ``when`` is true."""
        if when is None or isinstance(when, Reg):
            self._emitter.emit("ret", guard=when)
        elif self._emitter.static_condition(when):
            self._emitter.emit("ret")

    def finish(self) -> None:
        """End the kernel with ``ret``. Raises the error that invalidated the trace."""
        if self._emitter.failure:
            raise self._emitter.failure()
        last = self._emitter.body[-1] if self._emitter.body else None
        if not (isinstance(last, tree.Instruction) and last.opcode == "ret" and last.guard is None):
            self._emitter.line_info = False
            self._emitter.emit("ret")

    def close(self) -> None:
        """End the trace: its registers can't emit instructions any more."""
        message = "the register or pointer belongs to a trace that has ended"
        self._emitter.failure = partial(kernel_error, message, "make it in this kernel")

    def _break(self, message: str, hint: str) -> None:
        """Invalidate the trace: each later instruction raises a new error with this location."""
        self._emitter.failure = partial(
            KernelError, message, location=current_location(), hint=hint
        )

    def branch(self, p: Any, label: str, negated: bool = False) -> None:
        """``bra`` to a label, if the predicate is true (or, ``negated``, false)."""
        if p is not None and not isinstance(p, Reg):
            if self._emitter.static_condition(p) is negated:
                return
            p = None
        if p is None:
            self._emitter.emit("bra", label)
            return
        self._emitter.check_predicate(p)
        self.check_unguarded("a conditional branch")
        self._emitter.guard = tree.Guard(p.operand, negated)
        try:
            self._emitter.emit("bra", label)
        finally:
            self._emitter.guard = None

    def check_unguarded(self, what: str) -> None:
        if self._emitter.guard is not None:
            raise kernel_error(
                f"{what} must not be inside k.when, which only predicates instructions",
                "branch with k.if_",
            )
