"""Special registers, one row each: type, components, and the lowest PTX version and target.

They are read-only, and only ``mov`` and ``cvt`` may read them. ``WARP_SZ`` is a constant, not a
register.
"""

from __future__ import annotations

from dataclasses import dataclass

WARP_SIZE = "WARP_SZ"
READERS = ("mov", "cvt")
AXES = "xyzw"  # a vector's components; r, g, b, a are aliases


@dataclass(frozen=True, slots=True)
class SpecialRegister:
    """``%tid``: ``type`` is the type of a component, ``vector`` their number (1: a scalar).

    ``narrow`` are other widths in bits at which it may be read, from older versions of PTX.
    """

    name: str
    type: str
    vector: int = 1
    ptx: str = "1.0"
    target: str = "sm_10"
    narrow: tuple[int, ...] = ()


def _rows(
    names: str, type_: str, ptx: str, target: str = "sm_10", vector: int = 1, *narrow: int
) -> list[SpecialRegister]:
    return [
        SpecialRegister(f"%{name}", type_, vector, ptx, target, narrow) for name in names.split()
    ]


_TABLE = [
    *_rows("tid ntid ctaid nctaid", "u32", "1.0", "sm_10", 4, 16),
    *_rows("laneid warpid smid", "u32", "1.3"),
    *_rows("nwarpid nsmid", "u32", "2.0", "sm_20"),
    *_rows("gridid", "u64", "3.0", "sm_30", 1, 32),
    *_rows("lanemask_eq lanemask_le lanemask_lt lanemask_ge lanemask_gt", "u32", "2.0", "sm_20"),
    *_rows("clusterid nclusterid cluster_ctaid cluster_nctaid", "u32", "7.8", "sm_90", 4),
    *_rows("cluster_ctarank cluster_nctarank", "u32", "7.8", "sm_90"),
    *_rows("is_explicit_cluster", "pred", "7.8", "sm_90"),
    *_rows("clock", "u32", "1.0"),
    *_rows("clock_hi", "u32", "5.0", "sm_20"),
    *_rows("clock64", "u64", "2.0", "sm_20"),
    *_rows(" ".join(f"pm{i}" for i in range(8)), "u32", "1.3"),
    *_rows(" ".join(f"pm{i}_64" for i in range(8)), "u64", "4.0", "sm_50"),
    *_rows(" ".join(f"envreg{i}" for i in range(32)), "b32", "2.1", "sm_20"),
    *_rows("globaltimer", "u64", "3.1", "sm_30"),
    *_rows("globaltimer_lo globaltimer_hi", "u32", "3.1", "sm_30"),
    *_rows("total_smem_size dynamic_smem_size", "u32", "4.1", "sm_20"),
    *_rows("aggr_smem_size", "u32", "8.1", "sm_90"),
    *_rows(
        "reserved_smem_offset_begin reserved_smem_offset_end reserved_smem_offset_cap",
        "b32",
        "7.6",
        "sm_80",
    ),
    *_rows("reserved_smem_offset_0 reserved_smem_offset_1", "b32", "7.6", "sm_80"),
    *_rows("current_graph_exec", "u64", "8.0", "sm_50"),
]

#: Special registers by name, without components.
SPECIALS: dict[str, SpecialRegister] = {row.name: row for row in _TABLE}

#: Those that change while a thread runs: time, counters, SM and warp slot.
VOLATILE = frozenset(
    name
    for name in SPECIALS
    if name.startswith(("%clock", "%globaltimer", "%pm")) or name in ("%smid", "%warpid")
)


def component(name: str) -> tuple[str, int | None]:
    """``%tid.y`` → (``%tid``, 1), ``%laneid`` → (``%laneid``, None); −1 if unknown."""
    base, dot, letter = name.partition(".")
    if not dot:
        return base, None
    return base, {letter: i for names in (AXES, "rgba") for i, letter in enumerate(names)}.get(
        letter, -1
    )


def special(name: str) -> SpecialRegister | None:
    """The special register with a name such as ``%tid.x``, or None."""
    base, index = component(name)
    row = SPECIALS.get(base)
    if row is None or (index is None) != (row.vector == 1):
        return None
    return row if index is None or 0 <= index < row.vector else None


def special_vector_length(name: str) -> int:
    """The number of components of a special register without a component (``%tid``); else 0."""
    row = SPECIALS.get(name)
    return row.vector if row and row.vector > 1 else 0
