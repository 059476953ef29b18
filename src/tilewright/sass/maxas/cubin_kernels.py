"""maxas' commands over cubins: list, test, extract and insert.

print(list_kernels(cubin))
text = extract_kernel(cubin, "sgemm")
cubin = insert_kernel(cubin, assemble_maxas(encoding_table(cubin.sm), text))
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ...errors import CubinError, SassError
from ..code_listing import assemble, decode_code, disassemble
from ..control_code import ControlCode
from ..cubin_edit import with_code
from ..cubin_file import CubinFile, check_cubin
from ..edited_code import kept_instructions
from ..elf_tables import FUNCTION
from ..encoding_table import encoding_table
from ..nv_info import EXIT_OFFSETS, NO_VALUE, S2R_CTAID_OFFSETS, SIZED, InfoAttribute
from ..sass_instruction import SassInstruction
from ..sass_text import SassOperand, SassText
from ..schedule.operand_reuse import RegisterReads, register_reads
from ..schedule.timing_table import timing_table
from .maxas_assembler import AssembledKernel
from .sass_dump import SassDump

_KPARAM_INFO, _PARAM_CBANK, _CTAID_Z_USED = 0x17, 0x0A, 0x04
_DIMENSIONS = ("blockDimX", "blockDimY", "blockDimZ", "gridDimX", "gridDimY", "gridDimZ")
_FIRST_DIMENSION = {True: 8, False: 0}  # offset of blockDimX in bank 0, up to sm_6x and later


@dataclass(frozen=True, slots=True)
class KernelParameter:
    """``offset`` from the first parameter, ``size`` in bytes."""

    ordinal: int
    offset: int
    size: int


def kernel_parameters(cubin: CubinFile, name: str) -> tuple[int, list[KernelParameter]]:
    """Where the parameters begin in constant bank 0, and the parameters in order.

    Raises CubinError for malformed attributes.
    """
    base, found = 0, []
    for attribute in cubin.attributes(name):
        if attribute.code == _PARAM_CBANK and len(attribute.data) >= 6:
            base = int.from_bytes(attribute.data[4:6], "little")
        elif attribute.code == _KPARAM_INFO:
            if len(attribute.data) != 12:
                size = len(attribute.data)
                raise CubinError(f"a parameter of {name} must have 12 bytes, got {size}")
            _, ordinal, offset, bits = struct.unpack("<IHHI", attribute.data)
            found.append(KernelParameter(ordinal, offset, bits >> 18))
    return base, sorted(found, key=lambda p: p.ordinal)


def list_kernels(cubin: CubinFile) -> str:
    """The architecture, each kernel with its needs, and the symbols."""
    check_cubin(cubin)
    lines = [f"arch: sm_{cubin.sm}"]
    for name in cubin.functions:
        _, parameters = kernel_parameters(cubin, name)
        lines.append(
            f"Kernel: {name} (Params: {len(parameters)}, Size: {len(cubin.code(name))}, "
            f"Registers: {cubin.registers(name)}, SharedMem: {_shared_size(cubin, name)}, "
            f"Barriers: {cubin.barriers(name)})"
        )
    names = [s.name for s in cubin.symbols if s.name and s.info & 15 != FUNCTION]
    return "\n".join([*lines, *(f"Symbol: {name}" for name in names)])


def _shared_size(cubin: CubinFile, name: str) -> int:
    index = cubin.index(f".nv.shared.{name}")
    return 0 if index is None else cubin.elf.sections[index].size


# --- test -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CodingTest:
    """Of a cubin's instructions: ``passed`` have the same bits after a way through text,
    ``failed`` (function, offset, text) have not, or are not in the encodings.
    """

    passed: int
    failed: tuple[tuple[str, int, str], ...]
    opcodes: Counter[str]
    reads: RegisterReads

    def __str__(self) -> str:
        lines = [f"FAIL {name} {at:#06x} {text}" for name, at, text in self.failed]
        percent = 100 * self.reads.reused / max(1, self.reads.total)
        lines += [
            f"Register Bank Conflicts: {self.reads.conflicts}, Reuse: {percent:.1f}% "
            f"({self.reads.reused}/{self.reads.total})",
            f"Op Code Coverage Totals: Pass: {self.passed} Fail: {len(self.failed)}",
        ]
        return "\n".join(lines)


def check_encodings(cubin: CubinFile | SassDump, names: Iterable[str] = ()) -> CodingTest:
    """Assemble each instruction's text and compare bits; of a cubin, or of a listing. Raises
    SassError for an unknown architecture.
    """
    if not isinstance(cubin, SassDump):
        check_cubin(cubin)
    table = encoding_table(cubin.sm)
    failed: list[tuple[str, int, str]] = []
    opcodes: Counter[str] = Counter()
    texts: list[SassText] = []
    for name in names or cubin.functions:
        code = cubin.code(name)
        again = assemble(table, disassemble(table, code))
        decoded = decode_code(table, code)
        size = cubin.instruction_size
        for at, x in decoded:
            if x.text is None or again[at : at + size] != code[at : at + size]:
                failed.append((name, at, str(x.text) if x.text else f".word {x.raw:#x}"))
            else:
                opcodes[x.text.opcode.split(".")[0]] += 1
                texts.append(x.text)
    known = [t for t in texts if _has_properties(cubin.sm, t)]
    reads = register_reads(table, known)
    return CodingTest(sum(opcodes.values()), tuple(failed), opcodes, reads)


def _has_properties(sm: int, text: SassText) -> bool:
    try:
        timing_table(sm).row(text)
    except SassError:
        return False
    return True


# --- extract --------------------------------------------------------------------------------------


def extract_kernel(cubin: CubinFile | SassDump, name: str) -> str:
    """A kernel as a maxas file that assembles to the same instructions; from a listing, without
    what only a cubin has: parameters, registers, shared memory.

    Raises CubinError for an unknown function, SassError where the encodings lack an instruction.
    """
    if not isinstance(cubin, SassDump):
        check_cubin(cubin)
    table = encoding_table(cubin.sm)
    if name not in cubin.functions:
        known = ", ".join(cubin.functions[:8])
        raise CubinError(f"a kernel must be one of {known}, got {name!r}")
    decoded = _without_padding(decode_code(table, cubin.code(name)), cubin.sm)
    base, parameters = kernel_parameters(cubin, name) if isinstance(cubin, CubinFile) else (0, [])
    lines = [f"# Kernel: {name}", f"# Arch: sm_{cubin.sm}", f"# InsCnt: {len(decoded)}"]
    if isinstance(cubin, CubinFile):
        counts = cubin.registers(name), _shared_size(cubin, name), cubin.barriers(name)
        names = ("RegCnt", "SharedSize", "BarCnt")
        lines += [f"# {n}: {count}" for n, count in zip(names, counts, strict=True)]
        lines += [f"# Params({len(parameters)}):", "#\tord:addr:size"]
    lines += [f"#\t{p.ordinal}:{base + p.offset:#x}:{p.size}" for p in parameters]
    constants = _constants(cubin.sm, base, parameters)
    lines += ["#", "# Instructions:", "", "<CONSTANT_MAPPING>"]
    lines += [f"    {name} : {place}" for place, name in constants.items()]
    lines += ["</CONSTANT_MAPPING>", "", *_listing(decoded, constants, cubin.sm)]
    return "\n".join(lines) + "\n"


def _constants(sm: int, base: int, parameters: Sequence[KernelParameter]) -> dict[str, str]:
    """Names by their place in bank 0: block and grid dimensions, each word of a parameter."""
    first = _FIRST_DIMENSION[sm < 70]
    found = {f"c[0x0][{first + 4 * i:#x}]": n for i, n in enumerate(_DIMENSIONS)}
    for p in parameters:
        words = range(0, p.size, 4)
        for i, at in enumerate(words):
            part = f"[{i}]" if len(words) > 1 else ""
            found[f"c[0x0][{base + p.offset + at:#x}]"] = f"param_{p.ordinal}{part}"
    return found


def _without_padding(
    decoded: Sequence[tuple[int, SassInstruction]], sm: int
) -> list[tuple[int, SassInstruction]]:
    """The instructions before the final jump to itself, with the NOPs after it. On sm_5x that jump
    may go to the control word before it.
    """
    end = len(decoded)
    while end and _opcode(decoded[end - 1][1]) == "NOP":
        end -= 1
    last = decoded[end - 1] if end else None
    if last and last[1].text and _opcode(last[1]) == "BRA":
        target = int(last[1].text.operands[-1].numbers[-1])
        if _instruction_at(target, sm) == _instruction_at(last[0], sm):
            return list(decoded[: end - 1])
    return list(decoded)


def _opcode(x: SassInstruction) -> str:
    return x.text.opcode if x.text else ""


def _listing(
    decoded: Sequence[tuple[int, SassInstruction]], constants: dict[str, str], sm: int
) -> Iterable[str]:
    inside = {at for at, _ in decoded}
    targets = sorted({t for _, x in decoded if (t := _target(x, sm)) in inside and t is not None})
    labels = {at: f"TARGET{i}" for i, at in enumerate(targets, 1)}
    for at, x in decoded:
        if x.text is None:
            raise SassError(f"an instruction must be in the encodings, got {x.raw:#x} at {at:#x}")
        if at in labels:
            yield f"{labels[at]}:"
        text = x.text
        label = labels.get(_target(x, sm) or -1)
        if label is not None and x.target is not None:
            operands = list(text.operands)
            operands[x.target] = SassOperand("$", (), label)
            text = replace(text, operands=tuple(operands))
        shown = re.sub(r"c\[0x0\]\[0x[0-9a-f]+\]", lambda m: constants.get(m[0], m[0]), str(text))
        guard, _, rest = shown.partition(" ") if shown[0] == "@" else ("", "", shown)
        yield f"{x.control or ControlCode()} {guard:>5} {rest};"


def _target(x: SassInstruction, sm: int) -> int | None:
    if x.text is None or x.target is None or x.text.opcode.startswith("BRX"):
        return None
    return _instruction_at(int(x.text.operands[x.target].numbers[-1]), sm)


def _instruction_at(offset: int, sm: int) -> int:
    """The offset of the instruction at an address: on sm_5x the one after a control word."""
    return offset + 8 if sm < 70 and offset % 32 == 0 else offset


# --- insert ---------------------------------------------------------------------------------------


def insert_kernel(cubin: CubinFile, kernel: AssembledKernel, name: str = "") -> CubinFile:
    """The cubin with a kernel's code, registers, barriers and attributes replaced. Attributes and
    relocations of instructions that stay are kept.

    A kernel that calls other functions keeps at least its registers.
    ``name`` is by default that of the file's ``# Kernel:`` line. Raises CubinError for a kernel
    that the cubin does not have, and for needs beyond its limits.
    """
    check_cubin(cubin)
    name = name or kernel.name
    if name not in cubin.functions:
        known = ", ".join(cubin.functions[:8])
        raise CubinError(
            f"a kernel must be one of {known}, got {name!r}",
            hint="name it in the line `# Kernel: name`, or with --kernel",
        )
    table, before = encoding_table(cubin.sm), cubin.code(name)
    codes = decode_code(table, before), decode_code(table, kernel.code)
    motion = kept_instructions(*codes, (len(before), len(kernel.code)))
    edited = with_code(cubin, name, kernel.code, motion, kernel.exits)
    edited = edited.with_attributes(name, _attributes(edited, name, kernel))
    called = cubin.registers(name) if _calls_out(codes[1]) else 0
    if kernel.registers or called:
        edited = edited.with_registers(name, max(kernel.registers, called))
    return edited.with_barriers(name, kernel.barriers)


def _calls_out(decoded: Sequence[tuple[int, SassInstruction]]) -> bool:
    """Whether code calls other functions, which may need more registers than it names itself."""
    texts = [x.text for _, x in decoded if x.text is not None]
    return any(
        t.opcode.startswith(("CALL.ABS", "JCAL"))
        or (t.opcode.startswith("CALL") and t.operands[-1].kind != "#")
        for t in texts
    )


def _attributes(cubin: CubinFile, name: str, kernel: AssembledKernel) -> list[InfoAttribute]:
    """The attributes with offsets of EXIT, and on sm_5x of S2R SR_CTAID."""
    drop = {EXIT_OFFSETS, S2R_CTAID_OFFSETS, _CTAID_Z_USED} if cubin.sm < 70 else set()
    kept = [a for a in cubin.attributes(name) if a.code not in drop]
    if cubin.sm >= 70:
        return kept
    if kernel.ctaid_reads:
        kept.append(InfoAttribute(SIZED, S2R_CTAID_OFFSETS).with_words(kernel.ctaid_reads))
    if kernel.exits:
        kept.append(InfoAttribute(SIZED, EXIT_OFFSETS).with_words(kernel.exits))
    if kernel.reads_ctaid_z:
        kept.append(InfoAttribute(NO_VALUE, _CTAID_Z_USED))
    return kept
