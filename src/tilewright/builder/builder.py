"""The builder, ``k``: what a kernel function is given to write its kernel with.

It is the sum of its parts, each a file: emission of instructions, arithmetic, conversions, memory,
control flow, what warps do together, prints; and the names of special registers, which are here.
"""

from __future__ import annotations

import difflib
import operator
from typing import Any

from ..errors import UnknownName
from ..ptx import tree
from ..ptx.isa import ROWS
from ..ptx.special_registers import SPECIALS, VOLATILE, special
from ..target import Target
from .opcode_namespace import Opcode
from .operations.hopper_operations import HopperOperations
from .operations.kernel_printing import KernelPrinting
from .source_location import current_location, kernel_error
from .tensors.tensor_operations import TensorOperations
from .values.registers import Reg, is_integer
from .values.unpack_integers import IntegerUnpacking


class Vector3:
    """A special register with components: ``k.tid.x``."""

    def __init__(self, k: Builder, name: str) -> None:
        self._k = k
        self._name = name

    @property
    def x(self) -> Reg:
        return self._k.special(f"{self._name}.x")

    @property
    def y(self) -> Reg:
        return self._k.special(f"{self._name}.y")

    @property
    def z(self) -> Reg:
        return self._k.special(f"{self._name}.z")


class Builder(TensorOperations, IntegerUnpacking, HopperOperations, KernelPrinting):
    """Builds one kernel. Its methods emit instructions at the end of the kernel's body.

    ``k.tid``, ``k.ntid``, ``k.ctaid``, ``k.nctaid`` have ``.x .y .z`` (u32); ``k.laneid``;
    ``k.warpid``, counted from the linear thread index; ``k.ptx`` spells any instruction.
    """

    def __init__(self, *, lines: bool = True) -> None:
        super().__init__(lines=lines)
        self.ptx = Opcode(self)
        self.tid = Vector3(self, "tid")
        self.ntid = Vector3(self, "ntid")
        self.ctaid = Vector3(self, "ctaid")
        self.nctaid = Vector3(self, "nctaid")
        self.block: tuple[int, int, int] | None = None
        self.cluster: tuple[int, int, int] | None = None
        self.bounds: dict[str, tuple[int, ...]] = {}
        self.targets: list[str] = []

    def __getattr__(self, name: str) -> Any:
        """Only for names that there are none of: an error with what may be meant."""
        if name.startswith("_"):
            raise AttributeError(name)
        raise UnknownName(
            f"the builder has no k.{name}", place=current_location(), hint=_meant(name)
        )

    def special(self, name: str) -> Reg:
        """A special register, ``tid.x`` or ``clock64``: what never changes is read once, time,
        counters, ``smid`` and ``warpid`` each time.
        """
        row = special(f"%{name}")
        if row is None:
            raise kernel_error(f"no special register {name!r}; there are {_names()}")
        kind = row.type.replace("b", "u") if row.type != "pred" else row.type
        source = tree.Reg(f"%{name}")
        if row.name in VOLATILE:
            return self.emit(f"mov.{kind}", source)
        return self.emit_once(source, f"mov.{kind}", source)

    @property
    def laneid(self) -> Reg:
        return self.special("laneid")

    @property
    def warpid(self) -> Reg:
        """The warp's index in its CTA: the linear thread index / 32."""
        kept = self._prologue_values.get("warpid")
        if kept is None:
            with self.in_prologue():
                kept = self._prologue_values["warpid"] = self.thread >> 5
        return kept

    @property
    def thread(self) -> Reg:
        """The linear thread index in the CTA (``tid.x`` where the block is declared 1-D)."""
        if self.block is not None and self.block[1:] == (1, 1):
            return self.tid.x
        kept = self._prologue_values.get("thread")
        if kept is None:
            with self.in_prologue():
                above = self.mad(self.tid.z, self.ntid.y, self.tid.y)
                kept = self._prologue_values["thread"] = self.mad(above, self.ntid.x, self.tid.x)
        return kept

    def launch_bounds(
        self,
        block: Any = None,
        *,
        exact: bool = False,
        min_ctas: int = 0,
        max_registers: int = 0,
        cluster: Any = None,
    ) -> None:
        """What the kernel promises of its launch: the block (``.maxntid``; ``exact``:
        ``.reqntid``), how many CTAs should fit an SM (``.minnctapersm``), how many registers a
        thread may take (``.maxnreg``), the CTAs of a cluster (``.reqnctapercluster``)."""
        if block is not None:
            self.block = dimensions(block)
            self.bounds["reqntid" if exact else "maxntid"] = self.block
        self._bound("min_ctas", "minnctapersm", min_ctas)
        self._bound("max_registers", "maxnreg", max_registers)
        if cluster is not None:
            self.cluster = self.bounds["reqnctapercluster"] = dimensions(cluster)

    def _bound(self, name: str, directive: str, given: Any) -> None:
        if not is_integer(given) or given < 0:
            raise kernel_error(f"{name} is a positive number, or 0 for none, not {given!r}")
        if given:
            self.bounds[directive] = (operator.index(given),)

    def require(self, target: str) -> None:
        """Ask for a target beyond what the instructions need: ``sm_90a``."""
        self.targets.append(Target.parse(target).name)


def dimensions(size: Any) -> tuple[int, int, int]:
    """A grid, block or cluster as three numbers: 128, (128,), (16, 8), (16, 8, 1) are all right."""
    given = tuple(size) if isinstance(size, (tuple, list)) else (size,)
    good = (is_integer(n) and not isinstance(n, bool) and n > 0 for n in given)
    if not 1 <= len(given) <= 3 or not all(good):
        raise kernel_error(f"a grid or block is one to three positive numbers, not {size!r}")
    x, y, z = (*map(operator.index, given), 1, 1)[:3]
    return x, y, z


_ELSEWHERE = {  # names of CUDA, Triton and NumPy, and what they are here
    "exp": "k.ptx.ex2.approx.f32(x * 1.4426950408889634), a power of 2",
    "exp2": "k.ptx.ex2.approx.f32(x)",
    "log": "k.ptx.lg2.approx.f32(x) * 0.6931471805599453, of a logarithm to base 2",
    "log2": "k.ptx.lg2.approx.f32(x)",
    "where": "k.select(p, a, b)",
    "maximum": "k.max(a, b)",
    "minimum": "k.min(a, b)",
    "threadIdx": "k.tid",
    "blockIdx": "k.ctaid",
    "blockDim": "k.ntid",
    "gridDim": "k.nctaid",
    "program_id": "k.ctaid.x",
    "syncthreads": "k.barrier()",
    "printf": "k.print(format, ...)",
    "load": "pointer[index]",
    "store": "pointer[index] = value",
    "atomic_add": "k.ptx.atom.global_.add.f32(pointer, x)",
    "atomicAdd": "k.ptx.atom.global_.add.f32(pointer, x)",
    "dot": "k.mma, or k.gemm of tiles",
}


def _meant(name: str) -> str:
    """What somebody may mean by a name that there is none of."""
    if name in _ELSEWHERE:
        return _ELSEWHERE[name]
    own = [n for n in dir(Builder) if not n.startswith("_")] + ["tid", "ntid", "ctaid", "nctaid"]
    if name in ROWS:
        return f"k.ptx spells instructions: {ROWS[name][0].syntax}"
    if close := difflib.get_close_matches(name, own, n=3, cutoff=0.7):
        return "did you mean " + " or ".join(f"k.{n}" for n in close) + "?"
    return "k.ptx spells any instruction: k.ptx.mad.lo.s32(a, b, c)"


def _names() -> str:
    """The special registers, as ``k.special`` takes them."""
    return ", ".join(f"{n[1:]}.x" if row.vector > 1 else n[1:] for n, row in SPECIALS.items())
