"""The attributes of the ``.nv.info`` sections: what the driver must know about a kernel.

An entry is a format, a code and a value. ``NAMES`` has the names of the codes; ``OFFSET_RECORDS``
says which attributes hold offsets of instructions, and in records of how many words.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ..errors import CubinError

NO_VALUE, BYTE, HALF, SIZED = 1, 2, 3, 4  # formats
MAXREG_COUNT, EXIT_OFFSETS, S2R_CTAID_OFFSETS = 0x1B, 0x1C, 0x1D
REGISTER_COUNT, BRANCH_TARGETS, BARRIER_COUNT = 0x2F, 0x34, 0x4C

# Offsets of instructions: the words of a record, of which the first is the offset.
OFFSET_RECORDS = {
    0x1C: 1, 0x1D: 1, 0x25: 1, 0x27: 1, 0x28: 1, 0x2D: 1, 0x31: 1, 0x46: 1, 0x47: 1, 0x57: 1,
    0x59: 1, 0x2E: 2, 0x44: 2, 0x40: 3, 0x39: 4,
}  # fmt: skip
INSTR_REG_MAP, ANNOTATIONS = 0x40, 0x55
_END = 0xFFFFFFFF  # the third word of a record of INSTR_REG_MAP
_SPILL = 1  # the kind of an annotation: the offset of a load or store of a spilled register

NAMES = dict(
    enumerate(
        """PAD IMAGE_SLOT JUMPTABLE_RELOCS CTAIDZ_USED MAX_THREADS IMAGE_OFFSET IMAGE_SIZE
        TEXTURE_NORMALIZED SAMPLER_INIT PARAM_CBANK SMEM_PARAM_OFFSETS CBANK_PARAM_OFFSETS
        SYNC_STACK TEXID_SAMPID_MAP EXTERNS REQNTID FRAME_SIZE MIN_STACK_SIZE
        SAMPLER_FORCE_UNNORMALIZED BINDLESS_IMAGE_OFFSETS BINDLESS_TEXTURE_BANK
        BINDLESS_SURFACE_BANK KPARAM_INFO SMEM_PARAM_SIZE CBANK_PARAM_SIZE QUERY_NUMATTRIB
        MAXREG_COUNT EXIT_INSTR_OFFSETS S2RCTAID_INSTR_OFFSETS CRS_STACK_SIZE NEED_CNP_WRAPPER
        NEED_CNP_PATCH EXPLICIT_CACHING ISTYPEP_USED MAX_STACK_SIZE SUQ_USED
        LD_CACHEMOD_INSTR_OFFSETS LOAD_CACHE_REQUEST ATOM_SYS_INSTR_OFFSETS
        COOP_GROUP_INSTR_OFFSETS COOP_GROUP_MASK_REGIDS SW1850030_WAR WMMA_USED
        HAS_PRE_V10_OBJECT ATOMF16_EMUL_INSTR_OFFSETS ATOM16_EMUL_INSTR_REG_MAP REGCOUNT
        SW2393858_WAR INT_WARP_WIDE_INSTR_OFFSETS SHARED_SCRATCH STATISTICS
        INDIRECT_BRANCH_TARGETS SW2861232_WAR SW_WAR CUDA_API_VERSION NUM_MBARRIERS
        MBARRIER_INSTR_OFFSETS COROUTINE_RESUME_ID_OFFSETS SAM_REGION_STACK_SIZE
        PER_REG_TARGET_PERF_STATS CTA_PER_CLUSTER EXPLICIT_CLUSTER MAX_CLUSTER_RANK INSTR_REG_MAP
        RESERVED_SMEM_USED RESERVED_SMEM_0_SIZE UCODE_SECTION_DATA UNUSED_LOAD_BYTE_OFFSET
        KPARAM_INFO_V2 SYSCALL_OFFSETS SW_WAR_MEMBAR_SYS_INSTR_OFFSETS GRAPHICS_GLOBAL_CBANK
        SHADER_TYPE VRC_CTA_INIT_COUNT TOOLS_PATCH_FUNC NUM_BARRIERS TEXMODE_INDEPENDENT
        PERF_STATISTICS AT_ENTRY_FRAGMENTS SPARSE_MMA_MASK TCGEN05_1CTA_USED TCGEN05_2CTA_USED
        GEN_ERRBAR_AT_EXIT REG_RECONFIG ANNOTATIONS""".split(),
        1,
    )
) | {0x57: "STACK_CANARY_TRAP_OFFSETS", 0x58: "STUB_FUNCTION_KIND",
     0x59: "LOCAL_CTA_ASYNC_STORE_OFFSETS", 0x5A: "MERCURY_FINALIZER_OPTIONS"}  # fmt: skip

# Attributes with offsets whose records are not known, so that code under them can't move.
_OPAQUE = {0x33, 0x3A, 0x3C, 0x4F}
_HOLDS_NO_OFFSET = {0x66}  # seen with the value 3 in every kernel of ptxas 13; not named


@dataclass(frozen=True, slots=True)
class InfoAttribute:
    """One entry: ``value`` is 16 bits, or ``data`` the bytes of format SIZED."""

    format: int
    code: int
    value: int = 0
    data: bytes = b""

    @property
    def name(self) -> str:
        """``EXIT_INSTR_OFFSETS``; ``0x5f`` for a code without a name."""
        return NAMES.get(self.code, f"{self.code:#x}")

    @property
    def words(self) -> tuple[int, ...]:
        """The data as 32-bit words. Raises CubinError where it is not whole words."""
        if len(self.data) % 4:
            raise CubinError(
                f"attribute {self.name} must hold 32-bit words, got {len(self.data)} bytes"
            )
        return struct.unpack(f"<{len(self.data) // 4}I", self.data)

    def with_words(self, words: Sequence[int]) -> InfoAttribute:
        return replace(self, data=struct.pack(f"<{len(words)}I", *words))


def parse_attributes(data: bytes) -> tuple[InfoAttribute, ...]:
    """The entries of a section. Raises CubinError for a truncated or unknown format."""
    found: list[InfoAttribute] = []
    at = 0
    while at < len(data):
        if at + 4 > len(data):
            raise CubinError(f"an attribute must have 4 bytes, got {len(data) - at} at {at:#x}")
        layout, code, value = struct.unpack_from("<BBH", data, at)
        at += 4
        if layout not in (NO_VALUE, BYTE, HALF, SIZED):
            raise CubinError(f"an attribute's format must be 1 to 4, got {layout} at {at - 4:#x}")
        size = value if layout == SIZED else 0
        if at + size > len(data):
            raise CubinError(f"attribute {code:#x} must have {size} bytes, got {len(data) - at}")
        found.append(InfoAttribute(layout, code, 0 if size else value, bytes(data[at : at + size])))
        at += size
    return tuple(found)


def pack_attributes(attributes: Sequence[InfoAttribute]) -> bytes:
    """The bytes of a section; the inverse of ``parse_attributes``."""
    return b"".join(
        struct.pack("<BBH", a.format, a.code, len(a.data) if a.format == SIZED else a.value)
        + a.data
        for a in attributes
    )


def move_attribute(attribute: InfoAttribute, moved: Callable[[int], int | None]) -> InfoAttribute:
    """The attribute after its kernel's instructions moved; ``moved`` maps an old offset to the
    new one, None for a removed instruction, whose record is dropped.

    Raises CubinError for an attribute whose layout is not known.
    """
    if attribute.format != SIZED or attribute.code in _HOLDS_NO_OFFSET:
        return attribute
    if attribute.code in _OPAQUE or attribute.code not in NAMES:
        raise CubinError(
            f"attribute {attribute.name} may hold offsets of instructions, so they can't move",
            hint="keep each instruction at its offset",
        )
    if attribute.code == BRANCH_TARGETS:
        return attribute.with_words([*_moved_targets(attribute, moved)])
    if attribute.code == ANNOTATIONS:
        return attribute.with_words([*_moved_annotations(attribute, moved)])
    size = OFFSET_RECORDS.get(attribute.code)
    return attribute if size is None else attribute.with_words([*_moved(attribute, size, moved)])


def _moved(
    attribute: InfoAttribute, size: int, moved: Callable[[int], int | None]
) -> Iterator[int]:
    words = attribute.words
    if len(words) % size:
        raise CubinError(f"{attribute.name} must hold {size} words a record, got {len(words)}")
    if attribute.code == INSTR_REG_MAP and set(words[2::3]) - {_END}:
        raise CubinError(f"records of {attribute.name} must end in {_END:#x}, got {words[2::3]}")
    for i in range(0, len(words), size):
        offset = moved(words[i])
        if offset is not None:
            yield offset
            yield from words[i + 1 : i + size]


def _moved_annotations(
    attribute: InfoAttribute, moved: Callable[[int], int | None]
) -> Iterator[int]:
    words = attribute.words
    if len(words) % 2 or set(words[::2]) - {_SPILL}:
        raise CubinError(
            f"{attribute.name} must hold pairs of {_SPILL} and an offset, got {words[:8]}",
            hint="keep each instruction at its offset",
        )
    for offset in map(moved, words[1::2]):
        if offset is not None:
            yield from (_SPILL, offset)


def branch_targets(attribute: InfoAttribute) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """(offset of the branch, flags, offsets of its targets) of INDIRECT_BRANCH_TARGETS.

    Raises CubinError for a truncated record.
    """
    words, at = attribute.words, 0
    while at < len(words):
        count = words[at + 2] if at + 3 <= len(words) else len(words)
        if at + 3 + count > len(words):
            raise CubinError(f"{attribute.name} must have {count} targets, got fewer")
        yield words[at], words[at + 1], words[at + 3 : at + 3 + count]
        at += 3 + count


def _moved_targets(attribute: InfoAttribute, moved: Callable[[int], int | None]) -> Iterator[int]:
    for offset, flags, targets in branch_targets(attribute):
        branch = moved(offset)
        if branch is not None:
            kept = [t for t in map(moved, targets) if t is not None]
            yield from (branch, flags, len(kept), *kept)
