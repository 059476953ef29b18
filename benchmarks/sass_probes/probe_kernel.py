"""Kernels of SASS text: the shell is a cubin of our own PTX, its code is assembled here."""

from __future__ import annotations

from functools import cache

from tilewright.sass import CodeMotion, CubinFile, assemble, encoding_table, with_code

NAME = "probe"
PTX = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry probe(.param .u64 out, .param .u64 data, .param .u32 count,
  .param .u64 self)
.maxntid 512
{
  .reg .b64 %a;
  .reg .b32 %r;
  .shared .align 128 .b8 words[16384];
  ld.param.u64 %a, [out];
  cvta.to.global.u64 %a, %a;
  mov.u32 %r, words;
  st.shared.b32 [%r], %r;
  bar.sync 0;
  ld.shared.b32 %r, [%r];
  st.global.b32 [%a], %r;
  ret;
}
"""
# Parameters: out at 0x210, data at 0x218, count at 0x220, self (which holds 0x228) at 0x228.
SELF = 0x228
TABLE = encoding_table(90)
WAIT = "--:-:-:Y:f NOP"
NOP_BYTES = assemble(TABLE, "--:-:-:-:1 NOP ;")
ENTRY = ["--:-:1:Y:f S2R R0, SR_LANEID", "--:-:2:Y:f S2R R1, SR_TID.X",
         "--:-:-:Y:f ULDC.64 UR4, c[0x0][0x208]",
         "03:-:-:Y:f MOV R2, c[0x0][0x210]", "--:-:-:Y:f MOV R3, c[0x0][0x214]", WAIT]  # fmt: skip
EXIT = [WAIT, "--:-:-:-:5 EXIT", ".L_end:", "--:-:-:Y:0 BRA `(.L_end)"]
STALL_BIT, YIELD_BIT = 105, 109


def assembled(lines: list[str]) -> bytes:
    """The code of lines of SASS text; branches only go to labels of these lines."""
    labels: dict[str, int] = {}
    texts: list[str] = []
    for line in lines:
        if line.endswith(":"):
            labels[line[:-1]] = len(texts)
        else:
            texts.append(line)
    return b"".join(_one(x, i, labels) for i, x in enumerate(texts))


def _one(text: str, index: int, labels: dict[str, int]) -> bytes:
    before, quote, label = text.partition("`(")
    if not quote:
        return _encoded(text)
    return _branch(before, labels[label.rstrip(")")] - index)


@cache
def _encoded(text: str) -> bytes:
    return assemble(TABLE, text + " ;\n")


@cache
def _branch(text: str, distance: int) -> bytes:
    """A branch over ``distance`` instructions."""
    nops = "--:-:-:-:1 NOP ;\n" * max(-distance, distance - 1)
    line = f"{text}`(.L_x) ;\n"
    if distance <= 0:
        return assemble(TABLE, f".L_x:\n{nops}{line}")[-16:]
    return assemble(TABLE, f"{line}{nops}.L_x:\n--:-:-:-:1 NOP ;\n")[:16]


def image(shell: bytes, code: bytes, registers: int) -> bytes:
    """The shell's cubin with other code."""
    cubin = CubinFile.parse(shell)
    code += NOP_BYTES * (-len(code) // 16 % 8)
    motion = CodeMotion({0: 0}, len(cubin.code(NAME)), len(code))
    exits = [i for i in range(0, len(code), 16) if code[i : i + 2] in (b"\x4d\x79", b"\x4d\x09")]
    return with_code(cubin, NAME, code, motion, exits).with_registers(NAME, registers).build()


def constants(values: dict[int, int]) -> list[str]:
    """Lines that write constants to registers."""
    return [f"--:-:-:Y:f MOV R{n}, {value:#x}" for n, value in values.items()] + [WAIT]


def with_stall(code: bytes, index: int, stall: int) -> bytes:
    """Code whose instruction ``index`` stalls ``stall`` cycles, by NOPs after it beyond 15."""
    word = int.from_bytes(code[16 * index : 16 * index + 16], "little")
    first = stalled(word, min(stall, 15))
    nop, rest, more = int.from_bytes(NOP_BYTES, "little"), stall - 15, b""
    while rest > 0:
        more += stalled(nop, min(rest, 15))
        rest -= 15
    return code[: 16 * index] + first + more + code[16 * index + 16 :]


def stalled(word: int, stall: int) -> bytes:
    """An instruction with another stall; it yields from 12 cycles on, as it must."""
    word &= ~(31 << STALL_BIT)
    word |= stall << STALL_BIT | (stall < 12) << YIELD_BIT
    return word.to_bytes(16, "little")
