"""The main loop of an SGEMM without its copies: outer products of 8 × 16 FFMAs a thread, with
loads from shared memory between them, in variants that tell what costs cycles.

Rows' factors stay in the reuse cache; accumulators are in the bank that their column's factor is
not in, so that no FFMA but an outer product's first reads a bank twice. The factors of the next
outer product are loaded into the other of two sets of registers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sass_probes.probe_kernel import ENTRY, EXIT, WAIT, assembled

ROWS, COLUMNS = 8, 16
A, B, C = (64, 72), (80, 96), 112  # first registers of both sets of factors; of the accumulators
ADDRESS_A, ADDRESS_B, SPARE = 10, 11, 20
# Bits of the lane's number that choose the vector of A, and of B.
PATTERNS = {
    "kernel": ((1, 3), (0, 2, 4)), "2 × 16": ((4,), (0, 1, 2, 3)), "8 × 4": ((0, 1, 2), (3, 4)),
    "2 × 16, others": ((1,), (0, 2, 3, 4)), "1 × 32": ((), (0, 1, 2, 3, 4)),
    "4 × 8, others": ((3, 4), (0, 1, 2)),
}  # fmt: skip
LOADS = (ROWS + COLUMNS) // 4


@dataclass(frozen=True)
class Stream:
    """``depth`` outer products a turn. ``extra`` is the text of instructions between FFMAs, with
    {n} for the number of the first factor that a load gets; ``places`` are the FFMAs before which
    they are; ``control`` and ``pattern`` (of addresses: kernel, same, own) are theirs.
    ``uses`` tells whether the loaded factors are used, and so waited for.
    """

    depth: int = 8
    extra: str = ""
    places: tuple[int, ...] = ()
    control: str = "--:-:{b}:-:1"
    pattern: str = "kernel"
    uses: bool = True
    warps: int = 8
    before: str = ""  # "clear": the FFMA before an extra instruction keeps nothing
    row_control: str = "--:-:-:-:1"  # of a row's last FFMA
    columns_kept: bool = True
    narrow: bool = False  # the first loads, those of A's factors, are of 8 bytes


def spread(count: int, start: int = 4, step: int = 21) -> tuple[int, ...]:
    """Places of ``count`` instructions."""
    return tuple(start + step * i for i in range(count))


LOAD = "LDS.128 R{n}, [R{a}]"
EACH = spread(LOADS)
PLAIN = Stream(extra=LOAD, places=EACH)
IN_ORDER = replace(PLAIN, pattern="4 × 8, others")
STREAMS: dict[str, Stream] = {
    **{f"{16 * 8 * k} FFMAs": Stream(depth=k) for k in (2, 4, 8, 12, 16, 20, 24, 32)},
    "4 warps": Stream(warps=4),
    "loads": PLAIN,
    **{f"loads, {128 * k} FFMAs": replace(PLAIN, depth=k) for k in (4, 12, 16, 20, 24)},
    "loads, 4 warps": replace(PLAIN, warps=4),
    "loads, one address": replace(PLAIN, pattern="same"),
    "loads, own addresses": replace(PLAIN, pattern="own"),
    **{f"loads, lanes {p}": replace(PLAIN, pattern=p) for p in PATTERNS},
    **{f"loads in order, {128 * k} FFMAs": replace(IN_ORDER, depth=k) for k in (4, 12, 16)},
    "loads in order, 4 warps": replace(IN_ORDER, warps=4),
    "loads in order, every 16 FFMAs": replace(IN_ORDER, places=spread(LOADS, 4, 16)),
    "loads in order, at rows' ends": replace(IN_ORDER, places=spread(LOADS, 16, 16)),
    "loads in order, in a row": replace(IN_ORDER, places=(4,) * LOADS),
    "loads in order, A by 8 bytes": replace(IN_ORDER, narrow=True, places=spread(8, 4, 16)),
    "loads in order, yield": replace(IN_ORDER, control="--:-:{b}:Y:1"),
    "loads, results unused": replace(PLAIN, extra="LDS.128 R20, [R{a}]", uses=False),
    "loads at rows' ends": replace(PLAIN, places=tuple(16 * i for i in range(1, 7))),
    "loads, in a row": replace(PLAIN, places=(4,) * LOADS),
    "loads, two at a time": replace(PLAIN, places=(4, 4, 40, 40, 76, 76)),
    "loads, stall 2": replace(PLAIN, control="--:-:{b}:-:2"),
    "loads, yield": replace(PLAIN, control="--:-:{b}:Y:1"),
    "loads, reuse cleared before": replace(PLAIN, before="clear"),
    "loads, yield at rows' ends": replace(PLAIN, row_control="--:-:-:Y:1", columns_kept=False),
    "yield at rows' ends": Stream(row_control="--:-:-:Y:1", columns_kept=False),
    "columns not kept": Stream(columns_kept=False),
    "three loads": replace(
        PLAIN, extra="LDS.128 R20, [R{a}]", places=spread(3, 4, 42), uses=False
    ),
    "loads of 4 bytes": replace(PLAIN, extra="LDS R20, [R{a}]", uses=False),
    "loads of 8 bytes": replace(PLAIN, extra="LDS.64 R20, [R{a}]", uses=False),
    "12 loads of 8 bytes": replace(PLAIN, extra="LDS.64 R20, [R{a}]", uses=False,
                                   places=spread(12, 4, 10)),
    "idle loads": replace(PLAIN, extra="@!PT LDS RZ, [RZ]", control="--:-:-:-:1", uses=False),
    "NOP": replace(PLAIN, extra="NOP", control="--:-:-:-:1", uses=False),
    "MOV": replace(PLAIN, extra="MOV R20, R21", control="--:-:-:-:1", uses=False),
    "IADD3": replace(PLAIN, extra="IADD3 R20, R22, 0x10, RZ", control="--:-:-:-:1", uses=False),
    "IADD3 at rows' ends": replace(
        PLAIN, extra="IADD3 R20, R22, 0x10, RZ", control="--:-:-:-:1", uses=False,
        places=tuple(16 * i for i in range(1, 7))),
    "IMAD": replace(PLAIN, extra="IMAD R20, R22, 0x10, RZ", control="--:-:-:-:1", uses=False),
    "UIADD3": replace(PLAIN, extra="UIADD3 UR12, UR10, UR11, URZ", control="--:-:-:-:1",
                      uses=False),
}  # fmt: skip


def order() -> list[tuple[int, int]]:
    """(row, column) of an outer product's FFMAs, there and back."""
    return [(r, c if r % 2 == 0 else COLUMNS - 1 - c) for r in range(ROWS) for c in range(COLUMNS)]


def kernel(stream: Stream) -> tuple[bytes, int]:
    """The code, with a word of the clock before and after the loop for each warp, and the number
    of instructions in a turn.
    """
    body: list[str] = []
    for k in range(stream.depth):
        body += _outer_product(stream, k)
    return _loop(body, stream.pattern), len(body)


def _outer_product(stream: Stream, k: int) -> list[str]:
    """The FFMAs of one k, and what is between them."""
    mine, following = k % 2, (k + 1) % 2
    places = order()
    found = []
    left = list(stream.places)
    for i, (r, c) in enumerate(places):
        while left and left[0] == i:
            found.append(_extra(stream, len(stream.places) - len(left), following))
            left.pop(0)
        after = places[i + 1] if i + 1 < len(places) else (-1, -1)
        keeps = not (stream.before == "clear" and i + 1 in stream.places)
        row = ".reuse" if after[0] == r and keeps else ""
        column = ".reuse" if after[1] == c and stream.columns_kept and keeps else ""
        control = stream.row_control if after[0] != r else "--:-:-:-:1"
        if not i and stream.uses and stream.extra:
            control = f"{1 << mine:02x}" + control[2:]
        accumulator = C + 16 * r + (c ^ 1)
        found.append(f"{control} FFMA R{accumulator}, R{A[mine] + r}{row}, "
                     f"R{B[mine] + c}{column}, R{accumulator}")  # fmt: skip
    return found


def _extra(stream: Stream, number: int, following: int) -> str:
    width = 2 if stream.narrow else 4
    is_a = number < ROWS // width
    first = A[following] + width * number if is_a else B[following] + 4 * (number - ROWS // width)
    text = stream.extra.format(n=first, a=ADDRESS_A if is_a else ADDRESS_B)
    if is_a and stream.narrow:
        text = text.replace(".128", ".64")
    return f"{stream.control.format(b=following + 1)} {text}"


def _addresses(pattern: str) -> list[str]:
    """Lines that set the addresses of loads from the lane's number in R0: one for all lanes, one
    for each lane, or those of a warp with this number of lanes along the rows and columns.
    """
    if pattern == "same":
        return [f"--:-:-:Y:f MOV R{r}, RZ" for r in (ADDRESS_A, ADDRESS_B)]
    if pattern == "own":
        return [f"--:-:-:Y:f IMAD.SHL.U32 R{r}, R0, 0x10, RZ" for r in (ADDRESS_A, ADDRESS_B)]
    lines = [f"--:-:-:Y:f MOV R{r}, RZ" for r in (ADDRESS_A, ADDRESS_B)]
    for register, moved in zip((ADDRESS_A, ADDRESS_B), PATTERNS[pattern], strict=True):
        for to, bit in enumerate(moved, 4):
            shift = f"IMAD.SHL.U32 R12, R12, {1 << to - bit:#x}, RZ"
            lines += [
                f"--:-:-:Y:f LOP3.LUT R12, R0, {1 << bit:#x}, RZ, 0xc0, !PT",
                f"--:-:-:Y:f {shift}",
                f"--:-:-:Y:f LOP3.LUT R{register}, R{register}, R12, RZ, 0xfc, !PT",
            ]
    return lines


def _loop(body: list[str], pattern: str) -> bytes:
    setup = [
        *_addresses(pattern), "--:-:-:Y:f IMAD.SHL.U32 R13, R1, 0x10, RZ", WAIT,
        *[f"--:-:-:Y:f MOV R{r}, RZ" for r in (20, 21, 22, 23, *range(64, C + 128))],
        "--:1:-:Y:f STS.128 [R13], R64", "01:-:-:Y:f UMOV UR10, 0x40", "--:-:-:Y:f UMOV UR11, 0x80",
        "--:-:-:Y:f MOV R5, c[0x0][0x220]", WAIT, "--:-:-:Y:f BAR.SYNC 0x0", WAIT,
        "--:-:-:Y:f CS2R R6, SR_CLOCKLO", WAIT,
    ]  # fmt: skip
    ends = [
        "--:-:-:-:5 IADD3 R5, R5, -0x1, RZ", "--:-:-:Y:d ISETP.NE.AND P1, PT, R5, RZ, PT",
        "--:-:-:-:5 @P1 BRA `(.L_top)", "3f:-:-:Y:1 NOP", "--:-:-:Y:f CS2R R8, SR_CLOCKLO", WAIT,
        "--:-:-:Y:f MOV R7, R8", "--:-:-:Y:f LOP3.LUT P0, RZ, R1, 0x1f, RZ, 0xc0, !PT",
        "--:-:-:Y:f SHF.R.U32.HI R1, RZ, 0x5, R1", WAIT,
        "--:-:-:Y:f IMAD.WIDE.U32 R2, R1, 0x8, R2", WAIT,
        "--:-:-:Y:f @!P0 STG.E.64 desc[UR4][R2.64], R6",
    ]  # fmt: skip
    return assembled([*ENTRY, *setup, ".L_top:", *body, *ends, *EXIT])
