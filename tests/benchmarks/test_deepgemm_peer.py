"""DeepGEMM's kernels as grouped_scales.py has them: their names, shared memory and parameters."""

from __future__ import annotations

import struct

import pytest

pytest.importorskip("torch")
from compare.deepgemm_peer import Instance

TAIL = "EN7cutlass10bfloat16_tENS_8epilogue9transform16EpilogueIdentityEEEvPfPijjj14CUtensorMap_st"
CONTIGUOUS = (
    "_ZN9deep_gemm23sm90_fp8_gemm_1d2d_implILN4cute4UMMA5MajorE0ELj0ELj7168ELj3072ELj4ELj128ELj192"
    f"ELj128ELj128ELj128ELj128ELj4ELj128ELj256ELj2ELb0ELj132ELNS_8GemmTypeE1{TAIL}"
)
MASKED = (
    "_ZN9deep_gemm19sm90_bf16_gemm_implILN4cute4UMMA5MajorE0ELS3_0ELj0ELj1536ELj2048ELj128ELj64"
    "ELj256ELj64ELj128ELj128ELj128ELj4ELj128ELj128ELj2ELb0ELj132ELNS_8GemmTypeE2ELb0"
    "EN7cutlass10bfloat16_tEEEvPijjj14CUtensorMap_stS8_S8_"
)
ALONG_K = (
    "_ZN9deep_gemm23sm90_fp8_gemm_1d1d_implILj7168ELj2048ELj0ELj8ELj128ELj152ELj128ELj128ELj128"
    "ELj4ELj128ELj256ELj1ELb0ELj132ELNS_8GemmTypeE3EfEEvP13__nv_fp8_e4m3S3_PiP14CUtensorMap_stjjj"
)
PLACES = dict.fromkeys(("a", "b", "sa", "sb", "d", "layout", "maps"), 4096)


@pytest.mark.parametrize(
    ("name", "facts", "shared"),
    [
        (CONTIGUOUS, ("contiguous", (0, 7168, 3072, 4), (128, 192, 128), 4, 384, 2, 132), 215488),
        (MASKED, ("masked", (0, 1536, 2048, 128), (64, 256, 64), 4, 256, 2, 132), 196864),
        (ALONG_K, ("k", (7168, 2048, 0, 8), (128, 152, 128), 4, 384, 1, 132), 226560),
    ],
)
def test_the_name_says_what_an_instance_is(name, facts, shared):
    it = Instance.of(f"\0.text.{name}\0")
    assert it.name == name
    assert it[2:] == facts
    assert it.shared(facts[1][2]) == shared  # as DeepGEMM's own heuristic computes it


def test_parameters_are_in_the_order_of_the_kernel():
    values = Instance.of(CONTIGUOUS).arguments(PLACES | {"sb": 64, "layout": 32}, 32768, 7168, 3072)
    assert values[:2] == [struct.pack("<Q", 64), struct.pack("<Q", 32)]
    assert [struct.unpack("<I", x)[0] for x in values[2:5]] == [32768, 7168, 3072]
    assert [len(x) for x in values[5:]] == [128] * 4
    assert len(Instance.of(MASKED).arguments(PLACES, 128, 1536, 2048)) == 1 + 3 + 3
    assert len(Instance.of(ALONG_K).arguments(PLACES, 7168, 2048, 8 * 4096)) == 4 + 3 + 5


def test_a_map_of_masked_operands_spans_all_groups():
    maps = Instance.of(MASKED).maps(PLACES, 128, 1536, 2048)
    assert maps["a"].shape == (2048, 128 * 128)
    assert maps["b"].shape == (2048, 128 * 1536)
    assert maps["d"].shape == (1536, 128 * 128)
    maps = Instance.of(CONTIGUOUS).maps(PLACES, 32768, 7168, 3072)
    assert maps["a"].shape == (3072, 32768)
    assert maps["b"].shape == (3072, 4 * 7168)
    assert maps["sa"].shape == (32768, 24)


@pytest.mark.parametrize(
    ("kind", "bf16", "sizes"),
    [
        ("masked", False, (8192, 7168, 3072, 4)),
        ("contiguous", True, (8192, 7168, 3072, 4)),
        ("contiguous", False, (8192, 7168, 3072, 8)),
    ],
)
def test_another_product_is_refused(kind, bf16, sizes):
    it = Instance.of(CONTIGUOUS)
    it.require("contiguous", False, (8192, 7168, 3072, 4))
    with pytest.raises(SystemExit, match="it is fp8_gemm_1d2d, contiguous"):
        it.require(kind, bf16, sizes)


def test_a_file_without_a_grouped_kernel_is_refused():
    with pytest.raises(SystemExit, match="no kernel of DeepGEMM"):
        Instance.of("_ZN9deep_gemm10other_implILj1E")
    with pytest.raises(SystemExit, match="not a grouped kernel"):
        Instance.of(CONTIGUOUS.replace("GemmTypeE1", "GemmTypeE0"))
