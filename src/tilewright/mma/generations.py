"""The tensor-core generations: which arithmetic an instruction has on an architecture.

A row of ``GENERATIONS`` has the number of bits that are kept, the number of products in a fused
sum, and how ptxas lowers fp8 where mma.sync has no instruction for it; ``arithmetic`` combines
them. Each row is "published" unless its ``source`` names the GPU that confirmed it:
  MMA-Sim    Xie, Wang, Yang and Yang, arXiv 2511.10909, and version 2.1.1 of its programs (PyPI
             mmasim and mmasim-kernels): widths, fractions, minimum exponents, scales. In each of
             the 191 rows of MMA, MMABlockScale and WGMMA (mmasim/nv_ptx/sim.py; of wgmma N = 8 and
             40) it and this arithmetic returned the same bits for 29.6 million elements of D
  Leeds      Khattak and Mikaitis, arXiv 2512.07004: the same for V100 to B200. This arithmetic
             returns every bit of their recorded outputs of real GPUs (V100, A100, A2, RTX 1000 Ada,
             L40S, H100, B200: 5000 dot products for each type, f16, bf16, tf32 and fp8)
  Fasi       Fasi, Higham, Mikaitis, Pranesh, 2021: V100, T4, A100
  SASS       the machine code of ptxas 12.9 and 13.5 for each form, which defines its result there
m8n8k4 of f16 is HMMA.884 on sm_70 and also on sm_75 (SASS; all other f16 products are HMMA.1688
there). That instruction has Volta's arithmetic on both: 23 bits, 4 products (MMA-Sim 2.1.1,
mmasim/nv_ptx/sim.py, MMA.__init__; mmasim_kernels/nv_ptx/turing.py runs these forms on a GPU for
comparison). So 1·1 + 2^-12·2^-12 - 1 is 0 and not 2^-24. For f16 C and f32 D, HMMA.884.F32.F16
takes C without conversion, and a subnormal C is aligned by f16's minimum exponent, -14 (MMA-Sim
2.1.1, mmasim/arithmetic/fdpa.py, t_fdpa): in m8n8k4, and in the first of wmma's four sums on sm_70.
From sm_75 on, wmma first converts C to f32 (SASS: HADD2.F32), where it is normal.

The old .satfinite of floats is HMMA's .SATFINITE on sm_70 and sm_75, on the last sum (SASS):
infinities become the largest finite numbers, NaNs +0 (CUDA C++ Programming Guide, ``mma_sync``,
``satf``). f32 accumulators are then rounded to f16 to nearest (HADD2), which may overflow. From
sm_80 on it does not saturate: an H200 still returns infinities and NaNs, and rounds f32
accumulators to f16 toward zero (F2FP.RZ; ptxas warns of "unexpected results on sm_70 and later").
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ..dtypes import DType, dtype
from ..errors import TargetError
from ..target import Target
from .block_scales import BlockScaledDotAdd
from .instruction_form import MmaForm
from .mma_arithmetic import Arithmetic, FmaChain, FusedDotAdd, IntegerDotAdd, LoweredDotAdd

Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class TensorCoreGeneration:
    """The parameters of one generation of tensor cores.

    ``first`` is its lowest compute capability (90 for sm_90), ``fraction`` the number of bits kept
    below the largest exponent, ``width`` the bits of a row of stored A in one fused sum. ``fp8`` is
    the implementation of fp8 in mma.sync: ``none``, ``native`` or ``f16`` (ptxas lowers it to two
    f16 products and an addition); then ``fp8_fraction`` bits are kept, also of the result.
    """

    name: str
    first: int
    fraction: int
    width: int
    fp8: str = "none"
    fp8_fraction: int = 0
    source: str = "published"

    def least(self, sum_type: str) -> int:
        """The minimum exponent for alignment, which a zero has too.

        On an H200 it is -133 for f32 (measured by sums of bf16 products near f32's smallest
        numbers) and -21 for f16, as in Leeds (2^-25 and a smaller product: whether it is a tie).
        """
        return (4 if sum_type == "f16" else -108) - self.fraction


VOLTA = TensorCoreGeneration("Volta", 70, fraction=23, width=64)

# sm_86 has the machine code of sm_80, and an A2 returns its bits. sm_103 and sm_110 are as sm_100,
# without native fp8, fp6 and fp4 in mma.sync; sm_120 and sm_121 have them: QMMA and OMMA.
GENERATIONS = (
    VOLTA,
    TensorCoreGeneration("Turing", 75, fraction=24, width=128),
    TensorCoreGeneration("Ampere", 80, fraction=24, width=128),
    TensorCoreGeneration("Ada", 89, fraction=24, width=128, fp8="native", fp8_fraction=13),
    TensorCoreGeneration("Hopper", 90, 25, 256, fp8="f16", fp8_fraction=13, source="H200"),
    TensorCoreGeneration("Blackwell", 100, fraction=25, width=256, fp8="f16"),
    TensorCoreGeneration("Blackwell", 120, fraction=25, width=256, fp8="native", fp8_fraction=25),
)

# mxf4 and mxf4nvf4: products summed exactly before scaling, bits kept, and the minimum exponent.
FP4_GROUP, FP4_FRACTION, FP4_LEAST = 16, 35, -139


def generation(arch: str) -> TensorCoreGeneration:
    """The tensor cores of an architecture such as ``sm_90a``. TargetError where it has none."""
    candidates = [g for g in GENERATIONS if g.first <= Target.parse(arch).number]
    if not candidates:
        names = ", ".join(f"sm_{g.first} ({g.name})" for g in GENERATIONS)
        raise TargetError(f"{arch} has no tensor cores", hint=f"the generations are {names}")
    return candidates[-1]


@cache
def arithmetic(i: MmaForm) -> Arithmetic:
    """The arithmetic of an instruction on its architecture. TargetError where it has none."""
    facts = _generation(i)
    if not i.runs_on(i.arch):
        raise TargetError(f"{i.opcode} needs {i.required_targets}, got {i.arch}")
    types, verified = _types(i), facts.source != "published"
    if i.d == "s32":
        return IntegerDotAdd(*types, verified, i.satfinite, i.operation)
    if i.d == "f64":  # IEEE 754, but which NaN propagates was measured on an H200 only
        return FmaChain(*types, verified, i.rounding or "rn")
    if i.tiles > 1 and facts is not VOLTA:
        return LoweredDotAdd(*types, verified)
    if i.stype:
        group = 1 if i.kind == "mxf8f6f4" else FP4_GROUP
        return BlockScaledDotAdd(*types, verified, _fused(i, facts), dtype(i.stype), group)
    return _fused(i, facts)


def _generation(i: MmaForm) -> TensorCoreGeneration:
    """The generation whose arithmetic an instruction has: HMMA.884 has Volta's on sm_75 too."""
    own = generation(i.arch)
    return VOLTA if i.tiles > 1 and own.first < 80 else own


def _types(i: MmaForm) -> tuple[DType, DType, DType, DType]:
    return dtype(i.a), dtype(i.b), dtype(i.c), dtype(i.d)


def _fused(i: MmaForm, facts: TensorCoreGeneration) -> FusedDotAdd:
    sum_type = "f32" if "f32" in (i.c, i.d) else "f16"
    fraction = facts.fraction if _bits(i) > 8 or _lowered_to_f16(i, facts) else facts.fp8_fraction
    least = facts.least(sum_type)
    if _bits(i) == 4:
        fraction, least = FP4_FRACTION, FP4_LEAST
    return FusedDotAdd(
        *_types(i),
        facts.source != "published",
        _groups(i, facts),
        fraction,
        sum_type,
        mantissa_bits=min(fraction, dtype(sum_type).mantissa),
        starts_with_c=not _lowered_to_f16(i, facts),
        operand_type="f16" if _lowered_to_f16(i, facts) else "",
        min_exponent=least,
        final_rounding="rz" if i.satfinite and facts.first >= 80 else "rn",
        keeps_c_format=facts is VOLTA and i.c != sum_type,
        saturate=i.satfinite and facts.first < 80,
    )


def _bits(i: MmaForm) -> int:
    """Bits of a register per element: fp6 and fp4 take a byte except in mxf4 and mxf4nvf4."""
    return 8 if i.kind in ("f8f6f4", "mxf8f6f4") else dtype(i.a).bits


def _lowered_to_f16(i: MmaForm, facts: TensorCoreGeneration) -> bool:
    """Whether ptxas lowers it to f16 products: of bytes 0 and 1 of the registers, then 2 and 3."""
    return facts.fp8 == "f16" and _bits(i) == 8 and not i.asynchronous


def _groups(i: MmaForm, facts: TensorCoreGeneration) -> Groups:
    """The columns of stored A in each fused sum."""
    columns = range(i.stored_k)
    if _lowered_to_f16(i, facts):
        return tuple(tuple(k for k in columns if k % 4 in pair) for pair in ((0, 1), (2, 3)))
    size = facts.width // _bits(i)
    if i.family == "wmma" and i.a == "tf32":  # HMMA.1684 twice, on all architectures
        size = 4
    return tuple(tuple(columns[k : k + size]) for k in range(0, len(columns), size))
