"""What CuTe is asked: its documented examples, compositions that it takes though they are none, and
seeded random inputs for every operation.

A case is an operation's name and its arguments as text (``cute_sample``). What CuTe refuses drops
out when ``cute_make`` asks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cute_reference import cute_families as of
from cute_reference.cute_sample import Sampler, text

Case = tuple[str, ...]
Family = Callable[[Sampler], tuple[Any, ...]]

DOCUMENTED = """
coalesce|(_2,(_1,_6)):(_1,(_6,_2))
coalesce|(_2,(_1,_6)):(_1,(_6,_2))|(_1,_1)
composition|(_6,_2):(_8,_2)|(_4,_3):(_3,_1)
composition|_20:_2|(_5,_4):(_4,_1)
composition|(_10,_2):(_16,_4)|(_5,_4):(_1,_5)
composition|(10,2):(16,4)|(5,4):(1,5)
composition|(_3,_6,_2,_8):(_5,_15,_90,_180)|_16:_9
composition|(12,(4,8)):(59,(13,1))|<_3:_4,_8:_2>
composition|(12,(4,8)):(59,(13,1))|<_3,_8>
composition|(_4,_6,_8):(_1,_4,_7)|_6:_1
composition|(_4,_6,_8,_10):(_2,_3,_5,_7)|_6:_12
composition|(_8,_8):(_8,_1)|((_2,_2,_2),(_2,_2,_2)):((_1,_16,_4),(_8,_2,_32))
composition|(128,24,5):(1,128,3072)|480:_32
composition|(_8,_3):(_3,_1)|_4:_6
composition|(_3,_2):(_2,_1)|_4:_2
composition|((_4,_2,_8),_3):((_48,_1,_6),_2)|_8:_3
composition|((_6,_6),(_2)):((_2,_12),(_1))|(_16,(_2)):(_32,(_0))
composition|((_12,_16),(_2)):((_64,_2),(_3))|(_5,_3)
complement|_4:_1|_24
complement|_6:_4|_24
complement|(_4,_6):(_1,_4)|_24
complement|_4:_2|_24
complement|(_2,_4):(_1,_6)|_24
complement|(_2,_2):(_1,_6)|_24
complement|_64:_1|(_32,_4,_4)
complement|_64:_1|(_32,_4,4)
logical_divide|(_4,_2,_3):(_2,_1,_8)|_4:_2
logical_divide|(_9,(_4,_8)):(_59,(_13,_1))|<_3:_3,(_2,_4):(_1,_8)>
zipped_divide|(_9,(_4,_8)):(_59,(_13,_1))|<_3:_3,(_2,_4):(_1,_8)>
tiled_divide|(_9,(_4,_8)):(_59,(_13,_1))|<_3:_3,(_2,_4):(_1,_8)>
flat_divide|(_9,(_4,_8)):(_59,(_13,_1))|<_3:_3,(_2,_4):(_1,_8)>
logical_divide|_6:_1|(_2,_3):(_3,_1)
logical_divide|(_6,_6):(_1,_12)|(_6,_3):(_3,_1)
logical_divide|2:_1|_32:_1
logical_divide|48:_1|_32:_1
logical_divide|_32:_1|_48:_1
logical_divide|(_32,_4,4):(_1,_32,_128)|_64:_1
logical_product|(_2,_2):(_4,_1)|_6:_1
logical_product|(_2,_2):(_4,_1)|(_4,_2):(_2,_1)
logical_product|(_2,_5):(_5,_1)|<_3:_5,_4:_6>
blocked_product|(_2,_5):(_5,_1)|(_3,_4):(_1,_3)
raked_product|(_2,_5):(_5,_1)|(_3,_4):(_1,_3)
left_inverse|(_32,_4,_4,_4):(_262144,_4,_8388608,_1)
right_inverse|(_32,_4,_4,_4):(_262144,_4,_8388608,_1)
right_inverse|_4:_-1
nullspace|(_7,_5,_16):(_3,_1,_0)
domain_distribute|((_64,_3),(_8,_8))|_128
idx2crd|_16|(_3,(_2,_3))
idx2crd|_16|((_3,_2),_3)
crd2idx|(_1,(_1,_1))|(_3,(_2,_3))|(_3,(_12,_1))
make_ordered_layout|(_2,_2,_2,_2)|(_0,_2,_3,_1)
make_layout_like|(_2,_2,_2,_2):(_0,_2,_4,_1)
make_identity_layout|(_4,(_2,_3))
call|Sw<3,0,3> o _0 o (_8,_8):(_8,_1)|(_3,_)
zipped_divide|(_128,_64):(_64,_1)|<_16,_8>
zipped_divide|(4096,512):(512,_1)|<_128,_64>
tile_to_shape|Sw<3,3,3> o _0 o (_8,_64):(_64,_1)|(_128,_64,_4)
tile_to_shape|Sw<3,3,3> o _0 o (_64,_8):(_1,_64)|(_128,_64,_4)|(_1,_0,_2)
composition|Sw<3,3,3> o _0 o ((_8,_16),_64):((_64,_512),_1)|<(_16,_8):(_1,_16),(_8,_8):(_8,_1)>
right_inverse|((_4,_8),(_2,_2)):((_32,_1),(_16,_8))
left_inverse|((_4,_8),(_2,_2)):((_32,_1),(_16,_8))
complement|((_4,_8),(_2,_2)):((_32,_1),(_16,_8))|_512
recast|((_8,_16),_64):((_64,_512),_1)|_16|_128
max_common_vector|(_128,_64):(_64,_1)|((_8,_16),_64):((_64,_512),_1)
max_common_vector|Sw<3,3,3> o _0 o (_8,_64):(_64,_1)|(_8,_64):(_64,_1)
slice_and_offset|Sw<3,3,3> o _0 o (_8,_64):(_64,_1)|(_5,_)
slice_and_offset|Sw<3,3,3> o _0 o (_8,_64):(_64,_1)|(_,_24)
""".strip().splitlines()

# operation: (how many, arguments); those of layouts alone are asked again with late numbers
LAYOUTS: dict[str, list[tuple[int, Family]]] = {
    "coalesce": [(160, of.one), (80, of.by_profile)],
    "filter": [(100, of.one), (60, of.by_profile)],
    "filter_zeros": [(60, of.one)],
    "composition": [(500, of.composed), (300, of.composed_by_tiler)],
    "complement": [(300, of.complemented)],
    "right_inverse": [(200, of.distinct)],
    "left_inverse": [(200, of.distinct)],
    "max_common_layout": [(200, of.common)],
    "max_common_vector": [(120, of.common)],
    "nullspace": [(80, lambda s: (s.repeating(s.layout()),))],
    "logical_divide": [(200, of.divided), (50, lambda s: of.divided(s, keep=True))],
    "zipped_divide": [(150, of.divided)],
    "tiled_divide": [(120, of.divided)],
    "flat_divide": [(120, of.divided)],
    "logical_product": [(160, of.multiplied), (40, lambda s: of.multiplied(s, keep=True))],
    "zipped_product": [(120, of.multiplied)],
    "tiled_product": [(100, of.multiplied)],
    "flat_product": [(100, of.multiplied)],
    "blocked_product": [(150, of.side_by_side)],
    "raked_product": [(150, of.side_by_side)],
    "tile_to_shape": [(150, of.tiled_to_shape)],
    "upcast": [(150, of.cast)],
    "downcast": [(120, of.cast)],
    "recast": [(150, of.recast)],
    "with_shape": [(120, of.reshaped)],
    "group": [(40, of.ranged)],
    "take": [(40, of.ranged)],
    "select": [(40, of.selected)],
    "append": [(30, of.extended), (30, of.filled_up)],
    "prepend": [(30, of.extended), (30, of.filled_up)],
    "flatten": [(30, of.one)],
    "size": [(30, of.one)],
    "cosize": [(80, of.one)],
    "depth": [(20, of.one)],
    "rank": [(20, of.one)],
    "call": [(200, of.called), (150, of.sliced)],
    "dice": [(60, of.sliced)],
    "crd2idx": [(150, of.at_coordinate)],
    "idx2crd": [(150, of.at_index)],
    "crd2crd": [(100, of.from_shape_to_shape)],
    "shape_div": [(120, of.dividing)],
    "ceil_div": [(80, of.dividing)],
    "product_each": [(20, of.shaped)],
    "make_layout": [(40, of.shaped)],
    "make_ordered_layout": [(80, of.ordered)],
    "make_layout_like": [(60, of.distinct)],
    "max_alignment": [(80, of.positive)],
}
STATIC: dict[str, list[tuple[int, Family]]] = {
    "congruent": [(40, of.two_shapes)],
    "weakly_congruent": [(40, of.two_shapes)],
    "compatible": [(60, of.two_shapes)],
    "evenly_divides": [(40, of.two_shapes)],
    "elem_less": [(40, of.alike)],
    "domain_distribute": [(60, of.distributed)],
    "coalesce": [(60, of.identity_alone), (40, of.swizzled_alone)],
    "flatten": [(20, of.identity_alone), (20, of.swizzled_alone)],
    "composition": [
        (150, of.identity_tiled), (120, of.through_basis), (60, of.swizzle_of_layout),
        (60, of.layout_of_swizzle), (120, of.swizzled_tiled), (60, of.layout_of_swizzled),
    ],
    "make_identity_layout": [(30, of.shaped)],
    "cosize": [(30, of.identity_alone), (30, of.permuted_alone)],
    "coshape": [(30, of.one), (30, of.identity_alone)],
    "call": [
        (120, of.identity_called), (60, of.swizzle_called),
        (120, of.swizzled_called), (150, of.swizzled_sliced),
    ],
    "slice_and_offset": [(60, of.sliced), (200, of.swizzled_sliced)],
    "logical_divide": [(100, of.identity_tiled), (60, of.swizzled_tiled)],
    "zipped_divide": [(100, of.identity_tiled), (60, of.swizzled_tiled)],
    "tiled_divide": [(60, of.identity_tiled), (40, of.swizzled_tiled)],
    "flat_divide": [(60, of.identity_tiled), (40, of.swizzled_tiled)],
    "logical_product": [(60, of.swizzled_product), (60, of.product_with_swizzled)],
    "blocked_product": [(40, of.swizzled_product)],
    "raked_product": [(40, of.swizzled_product)],
    "tile_to_shape": [(80, of.swizzled_to_shape)],
    "upcast": [(60, of.swizzled_cast), (30, lambda s: (s.swizzle(), s.one_of(2, 4, 8)))],
    "downcast": [(60, of.swizzled_cast), (30, lambda s: (s.swizzle(), s.one_of(2, 4, 8)))],
    "recast": [(80, of.swizzled_recast)],
    "right_inverse": [(60, of.permuted_alone)],
    "left_inverse": [(60, of.permuted_alone)],
    "max_common_layout": [(60, of.swizzled_common)],
    "max_common_vector": [(80, of.swizzled_common)],
    "max_alignment": [(40, of.swizzled_alone)],
}  # fmt: skip
LATE = 0.35
"""How many as many cases with late numbers there are."""


def cases(seed: int = 0) -> list[Case]:
    """All cases, each once: those of the documents first."""
    found = dict.fromkeys(tuple(line.split("|")) for line in DOCUMENTED)
    for name, table in (("layouts", LAYOUTS), ("static", STATIC), ("late", LAYOUTS)):
        for op, families in table.items():
            for i, (count, family) in enumerate(families):
                s = Sampler(f"{seed} {name} {op} {i}")
                if name == "late":
                    found |= dict.fromkeys(late(op, s, family) for _ in range(int(count * LATE)))
                else:
                    found |= dict.fromkeys((op, *map(text, family(s))) for _ in range(count))
    return list(found)


EARLY = {
    "upcast": 1, "downcast": 1, "recast": 1, "group": 1, "take": 1, "select": 1, "append": 1,
    "prepend": 1, "make_ordered_layout": 1, "tile_to_shape": 2,
}  # fmt: skip
"""The place from which on arguments are template arguments, or orders: never late."""


def late(op: str, s: Sampler, family: Family) -> Case:
    chance, args = s.one_of(0.2, 0.5, 1.0), family(s)
    early = EARLY.get(op, len(args))
    return (op, *[text(s.late(x, chance)) for x in args[:early]], *map(text, args[early:]))
