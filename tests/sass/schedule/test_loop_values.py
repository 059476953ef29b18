"""Values of a loop: a guarded result that ends before its register has another use is a value of
its own; a loop whose instructions read other values than before is refused.
"""

from __future__ import annotations

import pytest

from tilewright.errors import SassError
from tilewright.sass.control_code import ControlCode
from tilewright.sass.sass_text import parse_instruction
from tilewright.sass.schedule.ffma_loop.loop_check import check_values
from tilewright.sass.schedule.ffma_loop.loop_registers import LoopRegisters
from tilewright.sass.schedule.ffma_loop.loop_values import LoopValues, _Renaming

# An address under a predicate, in registers that hold accumulators in the rest of the loop.
COPY = "@P6 LDGSTS.E [R9], desc[UR14][R2.64]"
ADDRESS = ["@P6 MOV R2, R12", "@P6 MOV R3, R13"]
SUMS = ["FFMA R2, R4, R5, R6", "FFMA R3, R4, R7, R8", "FFMA R6, R4, R5, R2", "FFMA R8, R4, R7, R3"]
SAVED = ["P2R R10, PR, RZ, 0x40", "LOP3.LUT P6, RZ, R11, 0x2, RZ, 0xc0, !PT"]
RESTORED = "ISETP.NE.AND P6, PT, R10, RZ, PT"


def values(*lines: str) -> LoopValues:
    """The values of a loop of these lines, by whose guards R2 and R3 are live at its head."""
    texts = [parse_instruction(x) for x in [*lines, "BRA 0x0"]]
    head, outside = {2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13}, {6, 8}
    controls = [ControlCode() for _ in texts]
    return _Renaming(90, texts, head, outside).result(0, len(texts) - 1, controls)


def target(loop: LoopValues, index: int) -> int:
    return int(loop.texts[index].operands[0].numbers[0])


@pytest.mark.parametrize(
    "between",
    [
        [COPY],
        [*SAVED, RESTORED, COPY],
        [COPY, "@P0 MOV R2, R9", "@P0 MOV R3, R9", COPY.replace("P6", "P0")],
    ],
)
def test_guarded_addresses_are_no_accumulators(between: list[str]) -> None:
    """Also where the guard is saved and restored, and where another guard's value follows."""
    loop = values(*ADDRESS, *between, *SUMS)
    sums = {target(loop, i) for i, x in enumerate(loop.old_texts) if x.opcode == "FFMA"}
    assert not {target(loop, 0), target(loop, 1)} & sums
    assert not {2, 3} & loop.live_in.keys()


DEFINED = "ISETP.GT.U32.AND P6, PT, R12, R13, PT"


@pytest.mark.parametrize(
    ("before", "is_begun"),
    [
        ([SAVED[0]], True),
        ([DEFINED, SAVED[0]], True),
        ([SAVED[0], DEFINED], False),
        ([SAVED[0], "MOV R10, R12"], False),
        ([SAVED[0].replace("0x40", "0x20")], False),
        (["@P0 " + SAVED[0]], False),
    ],
)
def test_a_guard_may_have_been_saved_before(before: list[str], is_begun: bool) -> None:
    loop = values(*before, *ADDRESS, SAVED[1], RESTORED, COPY, *SUMS)
    assert ({2, 3} <= loop.live_in.keys()) != is_begun


UNIFORM = "PLOP3.LUT P6, PT, PT, PT, UP0, 0x80, 0x0"
AGAIN = "PLOP3.LUT P5, PT, PT, PT, UP0, 0x80, 0x0"


@pytest.mark.parametrize(
    ("before", "between", "is_begun"),
    [
        ([UNIFORM], [AGAIN], True),
        ([UNIFORM, AGAIN], [], True),
        ([AGAIN], [UNIFORM], False),
        ([UNIFORM], ["UISETP.NE.AND UP0, UPT, UR4, URZ, UPT", AGAIN], False),
        ([UNIFORM], [AGAIN.replace("UP0", "UP1")], False),
        ([UNIFORM], [AGAIN.replace("UP0", "!UP0")], False),
        ([UNIFORM], ["@P0 " + AGAIN], False),
        (["@P0 " + UNIFORM], [AGAIN], False),
        ([UNIFORM], [AGAIN.replace("0x80", "0x20")], False),
    ],
)
def test_a_guard_may_be_a_uniform_predicate(
    before: list[str], between: list[str], is_begun: bool
) -> None:
    loop = values(*before, *ADDRESS, *between, COPY.replace("P6", "P5"), *SUMS)
    assert ({2, 3} <= loop.live_in.keys()) != is_begun


@pytest.mark.parametrize(
    "between",
    [
        [COPY.replace("@P6", "@P5")],
        [*SAVED, COPY],
        [*SAVED, RESTORED.replace("R10", "R11"), COPY],
        ["P2R R10, PR, RZ, 0x20", SAVED[1], RESTORED, COPY],
        [*SAVED, "MOV R10, R12", RESTORED, COPY],
        [*SAVED, RESTORED, COPY.replace("@P6", "@!P6")],
    ],
)
def test_other_guards_need_the_value_before(between: list[str]) -> None:
    loop = values(*ADDRESS, *between, *SUMS)
    assert {2, 3} <= loop.live_in.keys()
    assert target(loop, 0) == loop.live_in[2]


def placed(loop: LoopValues, order: list[int], sharing: dict[int, int]) -> None:
    """Check the loop in this order, each value in a register of its own but those ``sharing`` one
    with another.
    """
    numbers = {n: n - 1000 for g in loop.groups for n in range(g.first, g.first + g.width)}
    known = numbers | {n: numbers[other] for n, other in sharing.items()}
    texts = [loop.texts[i] for i in order]
    places = [None if loop.texts[i].opcode == "FFMA" else i for i in order]
    entering = frozenset(loop.live_in.values())
    check_values(loop, texts, places, LoopRegisters(known, entering))


def test_an_order_that_reads_other_values_is_refused() -> None:
    mine, other = (values(*ADDRESS, COPY.replace("P6", p), *SUMS) for p in ("P6", "P5"))
    early = [3, 4, 0, 1, 2, 5, 6, 7]
    for order in (list(range(8)), early):  # products before addresses, too
        placed(mine, order, {})
        with pytest.raises(SassError, match="must read the same values"):
            placed(other, order, {})  # one register for a sum and for the address before the loop
    with pytest.raises(SassError, match="must read the same values"):
        placed(mine, [0, 2, 1, *range(3, 8)], {})
    with pytest.raises(SassError, match="must have each instruction once"):
        placed(mine, [0, 1, 2, 2, *range(3, 8)], {})


def test_an_accumulator_that_is_moved_has_one_register() -> None:
    """The move is left out; one that copies another value is not."""
    lines = ["FFMA R2, R4, R5, R6", "MOV R3, R2", "FFMA R6, R4, R7, R3"]
    loop = values(*lines)
    assert len({target(loop, i) for i in range(3)}) == 1
    placed(loop, [0, 2, 3], {})
    with pytest.raises(SassError, match="must have each instruction once"):
        placed(loop, [0, 1, 2, 3], {})
    other = values("MOV R9, R12", "IADD3 R12, R12, 0x4, RZ", *ADDRESS, COPY, *SUMS)
    placed(other, [*range(10)], {})
    with pytest.raises(SassError, match="must read the same values"):
        placed(other, [1, 0, *range(2, 10)], {})


def test_registers_that_values_must_not_share_are_refused() -> None:
    loop = values(*ADDRESS, COPY, *SUMS)
    for n, other in ((target(loop, 3), target(loop, 0)), (loop.live_in[12], loop.live_in[13])):
        with pytest.raises(SassError, match=r"must (read the same values|be what it was)"):
            placed(loop, [3, 4, 0, 1, 2, 5, 6, 7], {n: other})
