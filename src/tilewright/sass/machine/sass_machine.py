"""``SassMachine``: runs the machine code of a cubin's kernels on the CPU.

    machine = SassMachine(CubinFile.parse(data))
    machine.run("add", grid=(4,), block=(128,), arguments=[x, y, np.int32(512)])

Arrays are copied to the machine's memory and back. The words of the code are decoded by the
package's encodings; a warp's 32 lanes, and all warps at one instruction, run as NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import SassError
from ..cubin_file import CubinFile, check_cubin
from ..finding import SassFinding
from .code_paths import SassCode
from .cta_run import CtaRun, SassLaunch, prepared
from .device_memory import WINDOWS, SassFault, SassMemory
from .hazards import function_code

Array = npt.NDArray[Any]
_PARAMETER_INFO = 0x17  # KPARAM_INFO: number, ordinal and offset, and the size in bits 18 to 31
_PARAMETER_BASE = {52: 0x140, 80: 0x160, 90: 0x210}
_GEOMETRY = {52: (0x8, 0x14), 80: (0x0, 0xC), 90: (0x0, 0xC)}  # block's and grid's sizes in c[0][…]
_STACK_POINTER = {52: 0x20, 80: 0x28, 90: 0x28}
_WINDOW_BASES = {80: {"shared": 0x18, "local": 0x20}, 90: {"local": 0x20}}  # generic addresses
_LOCAL_BYTES = 0x4000  # of a thread
_CONSTANT_BYTES = 0x2000
_MOST_THREADS = 1024  # per block
_POINTER = 8  # bytes; sm_5x may have addresses of 4
_RELOCATABLE = 1  # the file type of ``ptxas -c`` and ``nvcc -rdc=true``


class SassMachine:
    """A machine with the code of ``cubin`` and global memory of ``memory`` bytes.

    ``races`` of the last run are data races on shared memory, ``traces`` (where asked for) the
    instructions that each warp of each CTA issued: (index, wavefronts in shared memory).
    Raises SassError for a relocatable cubin, whose code lacks addresses.
    """

    def __init__(self, cubin: CubinFile, memory: int = 1 << 24) -> None:
        check_cubin(cubin)
        if cubin.elf.header[1] == _RELOCATABLE:
            raise SassError(
                "a cubin must be linked to run, got a relocatable one",
                hint="compile without -rdc=true, or link with nvlink",
            )
        self.cubin = cubin
        self.memory = SassMemory(memory)
        self.textures: dict[int, Array] = {}
        self.races: list[SassFinding] = []
        self.traces: list[list[list[tuple[int, int]]]] = []
        self.instructions = 0  # issued in the last run, by all warps
        self.cta_type = CtaRun  # a subclass may watch its accesses

    @cached_property
    def _codes(self) -> dict[str, Any]:
        return {}

    def code(self, name: str) -> SassCode:
        """A kernel's decoded code. Raises CubinError for an unknown name."""
        if name not in self._codes:
            self._codes[name] = function_code(self.cubin, name)
        found: SassCode = self._codes[name]
        return found

    def parameters(self, name: str) -> list[tuple[int, int]]:
        """(offset, bytes) of each parameter, in order."""
        words = [a.words for a in self.cubin.attributes(name) if a.code == _PARAMETER_INFO]
        ordered = sorted((w[1] & 0xFFFF, w[1] >> 16, w[2] >> 18) for w in words if len(w) >= 3)
        return [(offset, size) for _, offset, size in ordered]

    def run(
        self, name: str, grid: Sequence[int], block: Sequence[int], arguments: Sequence[Any],
        *, shared_bytes: int = 0, trace: bool = False, steps: int = 50_000_000,
    ) -> None:  # fmt: skip
        """Run a kernel. Arguments are arrays (copied to the machine and back), NumPy scalars, or
        integers (addresses); ``shared_bytes`` is dynamic shared memory.

        Read-only arrays are not copied back.

        Raises SassFault for sizes and arguments that no launch has, a bad access, a deadlock, or
        more than ``steps`` instructions; SassError for an instruction that the machine does not
        run.
        """
        grid, block = _dimensions("grid", grid), _dimensions("block", block)
        if np.prod(block) > _MOST_THREADS or shared_bytes < 0:
            raise SassFault(
                f"a launch must have at most {_MOST_THREADS} threads per block and no negative "
                f"shared memory, got block {block} and {shared_bytes} bytes"
            )
        code = self.code(name)
        constants = self._constants(name)
        arrays = self._place(name, arguments, constants[0])
        self._geometry(constants[0], grid, block)
        section = self.cubin.index(f".nv.shared.{name}")
        static = self.cubin.elf.sections[section].size if section is not None else 0
        launch = SassLaunch(
            code, prepared(code), self.memory, constants, self.textures, grid, block,
            static + shared_bytes, _LOCAL_BYTES, trace,
        )  # fmt: skip
        self.races, self.traces, self.instructions = [], [], 0
        with np.errstate(all="ignore"):
            for number in range(int(np.prod(grid))):
                cta = self.cta_type(launch, number)
                self.instructions += cta.run(steps - self.instructions)
                self.races += cta.race_findings()
                self.traces.append(cta.trace)
        for array, address in arrays:
            array[...] = self.memory.download(address, array)

    def _constants(self, name: str) -> dict[int, Array]:
        """Constant banks as uint32 words."""
        banks: dict[int, Array] = {0: np.zeros(_CONSTANT_BYTES // 4, np.uint32)}
        for section in self.cubin.elf.sections:
            title = section.name.removeprefix(".nv.constant")
            bank, _, owner = title.partition(".")
            if (
                title == section.name
                or not bank.isdigit()
                or bank == "0"
                or owner not in ("", name)
            ):
                continue
            padded = section.data + bytes(-len(section.data) % 4)
            banks[int(bank)] = np.frombuffer(padded, np.uint32).copy()
        self._relocate(banks)
        return banks

    def _globals(self) -> dict[int, int]:
        """Addresses of the sections of global variables, which are placed in memory."""
        placed: dict[int, int] = {}
        for index, section in enumerate(self.cubin.elf.sections):
            if section.name.startswith((".nv.global", ".nv.info")) and "info" not in section.name:
                data = np.frombuffer(section.data, np.uint8)
                placed[index] = self.memory.upload(data) if len(data) else (
                    self.memory.allocate(section.size))  # fmt: skip
        return placed

    def _relocate(self, banks: dict[int, Array]) -> None:
        """Write the addresses of global variables into bank 4."""
        placed = self._globals()
        for index, section in enumerate(self.cubin.elf.sections):
            if section.name not in (".rel.nv.constant4", ".rela.nv.constant4") or 4 not in banks:
                continue
            for relocation in self.cubin.relocations(index):
                symbol = self.cubin.symbols[relocation.symbol]
                if symbol.section not in placed:
                    continue
                address = placed[symbol.section] + symbol.value + (relocation.addend or 0)
                banks[4].view(np.uint64)[relocation.offset // 8] = address

    def _place(
        self, name: str, arguments: Sequence[Any], constants: Array
    ) -> list[tuple[Array, int]]:
        """Write the arguments into the parameter area; (array, address) of those uploaded."""
        layout = self.parameters(name)
        if len(layout) != len(arguments):
            raise SassFault(f"{name} must have {len(layout)} arguments, got {len(arguments)}")
        area = constants.view(np.uint8)
        arrays = []
        for (offset, size), value in zip(layout, arguments, strict=True):
            if isinstance(value, np.ndarray):
                address = self.memory.upload(value)
                if value.flags.writeable:
                    arrays.append((value, address))
                data = address.to_bytes(size if self.cubin.sm < 70 else _POINTER, "little")
            else:
                data = _packed(value, size)
            if len(data) != size:
                raise SassFault(f"a parameter of {name} must have {size} bytes, got {len(data)}")
            start = _PARAMETER_BASE[self.cubin.sm] + offset
            area[start : start + size] = np.frombuffer(data, np.uint8)
        return arrays

    def _geometry(self, constants: Array, grid: Sequence[int], block: Sequence[int]) -> None:
        for base, sizes in zip(_GEOMETRY[self.cubin.sm], (block, grid), strict=True):
            constants[base // 4 : base // 4 + 3] = sizes
        constants[_STACK_POINTER[self.cubin.sm] // 4] = _LOCAL_BYTES
        for name, byte in _WINDOW_BASES.get(self.cubin.sm, {}).items():
            constants[byte // 4 + 1] = WINDOWS[name]


def _dimensions(name: str, sizes: object) -> tuple[int, int, int]:
    """Three sizes from one to three. Raises SassFault for what are not positive integers."""
    found = tuple(sizes) if isinstance(sizes, Sequence) else ()
    if not 1 <= len(found) <= 3 or not all(
        isinstance(x, int | np.integer) and x > 0 for x in found
    ):
        raise SassFault(f"{name} must be one to three positive integers, got {sizes!r:.80}")
    x, y, z = (*map(int, found), 1, 1)[:3]
    return x, y, z


def _packed(value: object, size: int) -> bytes:
    """The bytes of a scalar argument. Raises SassFault for other types, such as Python's float."""
    if isinstance(value, np.generic):
        return value.tobytes()
    if isinstance(value, bytes):
        return value
    if not isinstance(value, int) or not -(1 << 8 * size - 1) <= value < 1 << 8 * size:
        raise SassFault(
            f"an argument must be an array, a NumPy scalar or an integer of {size} bytes,"
            f" got {value!r:.80}"
        )
    return value.to_bytes(size, "little", signed=value < 0)


def bind_textures(machine: SassMachine, textures: Mapping[int, Array]) -> None:
    """Give handles their 1-D linear textures: uint32 of (texels, 4)."""
    machine.textures.update(textures)
