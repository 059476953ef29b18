"""CuTe's names of matrix instructions and copies, with ours: what ``cute_tiled_make`` asks about.

An atom is (opcode, where A comes from, C++ of the operation), a copy (operation and bits of a
value, C++ of the Copy_Atom); plain copies are ``copy BITS`` and ``cp.async BYTES``.
"""

from __future__ import annotations

from collections.abc import Iterator

TYPES = {
    "F16": "f16", "BF16": "bf16", "TF32": "tf32", "F32": "f32", "F64": "f64", "S32": "s32",
    "S8": "s8", "U8": "u8", "S4": "s4", "U4": "u4", "U1": "b1", "E4M3": "e4m3", "E5M2": "e5m2",
}  # fmt: skip
kind_of = TYPES.__getitem__
LETTERS = {"T": "row", "N": "col"}


def mma(name: str, shape: str, types: str, letters: str = "TN", more: str = "") -> tuple[str, ...]:
    """(opcode, C++) of a CuTe name such as SM80_16x8x16_F32F16F16F32_TN."""
    d, a, b, c = types.split()
    m, n, k = shape.split("x")
    layouts = ".".join(LETTERS[letter] for letter in letters)
    kinds = ".".join(TYPES[t] for t in (d, a, b, c))
    popc = {"XORPOPC": ".xor.popc", "ANDPOPC": ".and.popc"}.get(more, "")
    saturated = ".satfinite" * (more == "SATURATE")
    opcode = f"mma.sync.aligned.m{m}n{n}k{k}.{layouts}{saturated}.{kinds}{popc}"
    ending = f"_{letters}" + f"_{more}" * bool(more)
    return opcode, "rmem", f"{name}_{shape}_{d}{a}{b}{c}{ending}"


def warpgroup(n: int, k: int, types: str, source: str, sparse: bool = False) -> tuple[str, ...]:
    d, a, b = types.split()
    opcode = ".".join(
        ["wgmma.mma_async", *["sp"] * sparse, f"sync.aligned.m64n{n}k{k}", *map(kind_of, (d, a, b))]
    )
    majors = "<GMMA::Major::K,GMMA::Major::K>" if a in ("F16", "BF16") else "_TN<>"
    plain = "_TN" if a in ("S8", "U8") else majors
    family = "SPARSE::GMMA" if sparse else "MMA"
    name = f"SM90::GMMA::{family}_64x{n}x{k}_{d}{a}{b}_{source}{plain}"
    return opcode, {"SS": "smem", "RS": "rmem"}[source], name


def dense_atoms() -> Iterator[tuple[str, ...]]:
    for t in ("F16 F16 F16 F16", "F32 F16 F16 F32"):
        for letters in ("TN", "NT", "NN", "TT"):
            yield mma("SM70", "8x8x4", t, letters)
        yield mma("SM75", "16x8x8", t)
        yield mma("SM80", "16x8x16", t)
    for shape in ("16x8x8", "16x8x16"):
        yield mma("SM80", shape, "F32 BF16 BF16 F32")
    for shape in ("16x8x4", "16x8x8"):
        yield mma("SM80", shape, "F32 TF32 TF32 F32")
    yield mma("SM80", "8x8x4", "F64 F64 F64 F64")
    for shape in ("16x8x4", "16x8x8", "16x8x16"):
        yield mma("SM90", shape, "F64 F64 F64 F64")
    for a, b in (("S8", "S8"), ("U8", "S8"), ("S8", "U8")):
        for shape in ("8x8x16", "16x8x16", "16x8x32"):
            yield mma("SM80", shape, f"S32 {a} {b} S32")
    for shape in ("8x8x32", "16x8x32", "16x8x64"):
        yield mma("SM80", shape, "S32 U4 S4 S32", more="SATURATE")
    for shape in ("8x8x128", "16x8x256"):
        yield mma("SM80", shape, "S32 U1 U1 S32", more="XORPOPC")
    yield mma("SM89", "16x8x32", "F32 E4M3 E5M2 F32")


def warpgroup_atoms() -> Iterator[tuple[str, ...]]:
    for n in (8, 64, 120, 256):
        for source in ("SS", "RS"):
            yield warpgroup(n, 16, "F32 F16 F16", source)
            yield warpgroup(n, 8, "F32 TF32 TF32", source)
            yield warpgroup(n, 32, "F16 E4M3 E5M2", source)
    yield warpgroup(96, 32, "S32 S8 S8", "RS")


def sparse_atoms() -> Iterator[tuple[str, ...]]:
    for n in (8, 128):
        for source in ("SS", "RS"):
            yield warpgroup(n, 32, "F32 F16 F16", source, True)
            yield warpgroup(n, 16, "F32 TF32 TF32", source, True)
            yield warpgroup(n, 64, "F32 E4M3 E4M3", source, True)


def scaled_atoms() -> Iterator[tuple[str, ...]]:
    fp4, fp8 = "float_e2m1_t", "float_e4m3_t"
    for shape, vec, kind, types, cute in (
        ("16x8x64", 32, "mxf4.block_scale.scale_vec::2X", "e2m1.e2m1.f32.ue8m0", fp4),
        ("16x8x64", 16, "mxf4nvf4.block_scale.scale_vec::4X", "e2m1.e2m1.f32.ue4m3", fp4),
        ("16x8x32", 32, "mxf8f6f4.block_scale.scale_vec::1X", "e4m3.e4m3.f32.ue8m0", fp8),
    ):
        m, n, k = shape.split("x")
        scale = f"float_{types.rpartition('.')[2]}_t"
        opcode = f"mma.sync.aligned.m{m}n{n}k{k}.row.col.kind::{kind}.f32.{types}"
        name = f"SM120::BLOCKSCALED::SM120_{shape}_TN_VS<{cute},{cute},float,{scale},{vec}>"
        yield opcode, "rmem", name


# --- copies ---------------------------------------------------------------------------------------

SIZED = {8: "uint8_t", 16: "uint16_t", 32: "uint32_t", 64: "uint64_t", 128: "uint128_t"}


def copy_ops() -> Iterator[tuple[str, str]]:
    for bits in SIZED:
        yield f"copy {bits}", f"UniversalCopy<{SIZED[bits]}>"
    for size in (4, 8, 16):
        yield f"cp.async {size}", f"SM80_CP_ASYNC_CACHEALWAYS<{SIZED[8 * size]}>"
    for count in (1, 2, 4):
        for trans, ending in (("", f"U32x{count}"), (".trans", f"U16x{2 * count}")):
            form = f"sync.aligned.m8n8.x{count}{trans}"
            letter = "T" if trans else "N"
            yield f"ldmatrix.{form}.shared.b16", f"SM75_{ending}_LDSM_{letter}"
            yield f"stmatrix.{form}.shared.b16", f"SM90_{ending}_STSM_{letter}"
        for bits in (4, 6):
            packed = {4: "b4x16_p64", 6: "b6x16_p32"}[bits]
            opcode = f"ldmatrix.sync.aligned.m8n16.x{count}.shared.b8x16.{packed}"
            yield opcode, f"SM100_SU{bits}_DU8x16_x{count}_LDSM_N"
        opcode = f"stmatrix.sync.aligned.m16n8.x{count}.trans.shared.b8"
        yield opcode, f"SM100_U8x{4 * count}_STSM_T"


def copy_atoms(bits: tuple[int, ...] = (8, 16, 32)) -> Iterator[tuple[str, str]]:
    for op, name in copy_ops():
        moved = int(op.split()[1]) * (8 if "async" in op else 1) if " " in op else 0
        for size in bits:
            most = moved or (size if "trans" not in op else 8 if ".b8" in op else 16)
            if size <= most:
                yield f"{op}|{size}", f"Copy_Atom<{name},{SIZED[size]}>{{}}"
