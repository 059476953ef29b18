"""``matmul`` with epilogue functions on a GPU: the virtual machine's bits, for every kernel;
tensors in place, on the current stream and in a graph.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
from epilogue_calls import (
    CONFIGS,
    MAXIMA,
    OTHER_KERNELS,
    PAIRS,
    QUANTIZED,
    RNG,
    affine,
    coordinates,
    gated,
    masked,
    masked_gradient,
    maxima,
    operands_of_every_shape,
    random,
    reductions,
    two_outputs,
)
from tilewright.gemm.epilogue.functions import amax, dropout, gelu
from tilewright.gemm.epilogue.tracing import cast, epilogue

pytestmark = [pytest.mark.gpu, pytest.mark.sm("sm_90a")]  # the virtual machine models sm_90a


def check_bits(
    function: Any, shape: tuple[int, ...], types: tuple[str, str], config: str | None,
    operands: dict[str, Any], **options: Any,
) -> None:  # fmt: skip
    """All outputs of a call have the virtual machine's bits, sums as well."""
    *batch, m, n, k = shape
    a, b = random((*batch, m, k), types[0]), random((*batch, k, n), types[1])
    check_same(function, a, b, config, operands, **options)


def check_same(
    function: Any, a: Any, b: Any, config: str | None, operands: dict[str, Any], **options: Any
) -> None:
    """The call twice on the GPU and once on the virtual machine."""
    here, again, there = (
        tilewright.matmul(
            a, b, epilogue=function, device=device, config=config, **options, **operands
        )
        for device in ("cuda", "cuda", "vm")
    )
    named = [x if isinstance(x, dict) else {"d": x} for x in (here, again, there)]
    assert list(named[0]) == list(named[2])
    for name, expected in named[2].items():
        for got in named[:2]:
            assert got[name].dtype == expected.dtype and got[name].shape == expected.shape
            bits, wanted_bits = (np.atleast_1d(x).view(np.uint8) for x in (got[name], expected))
            same = bits == wanted_bits
            assert same.all(), f"{name}: {(~same).sum()} bytes, {np.argwhere(~same)[:4].tolist()}"


@pytest.mark.parametrize("name", CONFIGS)
def test_operands_of_every_shape(name: str) -> None:
    config, shape = CONFIGS[name]
    check_bits(affine, shape, ("f16", "f16"), config, operands_of_every_shape(shape))


@pytest.mark.parametrize("name", CONFIGS)
def test_several_outputs_of_several_types(name: str) -> None:
    config, shape = CONFIGS[name]
    check_bits(two_outputs, shape, ("bf16", "bf16"), config, {"bias": random(shape[-2:-1], "f32")})


TAIL_SPLIT = ("tma:64x64x64:1:3+2", (700, 750, 128))  # of 144 tiles an H200 splits the last 12
REDUCED = {key: (config, ("f16", "f16"), shape) for key, (config, shape) in CONFIGS.items()}
REDUCED |= {"tail split": (TAIL_SPLIT[0], ("f16", "f16"), TAIL_SPLIT[1])} | OTHER_KERNELS
del REDUCED["simt, cluster"]  # a ConfigError


@pytest.mark.parametrize("name", REDUCED)
def test_reductions_are_combined_over_all_tiles(name: str) -> None:
    config, types, shape = REDUCED[name]
    bias = {"bias": random(shape[-2:-1], "f32")}
    check_bits(reductions, shape, types, config, bias, out_dtype="e4m3")


@pytest.mark.parametrize("name", REDUCED)
def test_a_mask_is_stored_and_read(name: str) -> None:
    config, (type_, _), shape = REDUCED[name]
    *batch, m, n, k = shape
    a, b = random((*batch, m, k), type_), random((*batch, k, n), type_)
    check_same(masked, a, b, config, {"bias": random((n,), "f32")})
    mask = RNG.integers(0, 256, (*batch, m, -(-n // 8)), np.uint8)
    check_same(masked_gradient, a, b, config, {"mask": mask})


@pytest.mark.parametrize("name", MAXIMA)
def test_maxima_over_rows_and_columns(name: str) -> None:
    config, shape = TAIL_SPLIT if name == "tail split" else MAXIMA[name]
    check_bits(maxima, shape, ("f16", "f16"), config, {"bias": random(shape[-2:-1], "f32")})


@pytest.mark.parametrize("name", QUANTIZED)
def test_integers_are_scaled_in_f32(name: str) -> None:
    types, config, function, _ = QUANTIZED[name]
    shape = (67, 49, 130) if "odd" in name else (64, 64, 128)
    operands = {"scale": random((shape[1],), "f32"), "row": random((shape[0], 1), "bf16")}
    check_bits(function, shape, types, config, operands)


@pytest.mark.parametrize("config", ["tma:64x64x64:1:3", "tma:64x64x64:1:3~"])
def test_element_coordinates(config: str) -> None:
    operands = {"bias": random((49,), "e4m3")}
    check_bits(coordinates, (67, 49, 64), ("f16", "f16"), config, operands, out_dtype="f32")


@pytest.mark.parametrize("name", PAIRS)
def test_two_matrices_b_meet_in_the_epilogue(name: str) -> None:
    config, major = PAIRS[name]
    a, w = random((130, 72), "f16"), random((72, 208), "f16")
    pair = w[:, :104], w[:, 104:]
    if major == "k":
        pair = np.asfortranarray(pair[0]), np.asfortranarray(pair[1])
    check_same(gated, a, pair, config, {"s": 2.0})


@pytest.mark.parametrize("name", OTHER_KERNELS)
def test_epilogues_in_kernels_of_cp_async(name: str) -> None:
    config, types, shape = OTHER_KERNELS[name]
    operands = operands_of_every_shape(shape)
    check_bits(affine, shape, types, config, operands)
    check_bits(two_outputs, shape, types, config, {"bias": operands["bias"]})


@epilogue
def approximations(acc, bias):
    """Operations that the tensor core's SM approximates, and random numbers."""
    x = acc * 0.25 + bias
    y = dropout(gelu(x) + gelu(x, approximate="tanh") * tilewright.sigmoid(x), 0.1, seed=7)
    return {"d": cast(y, "e4m3"), "exact": cast(y, "f32"), "amax": amax(y)}


def test_approximations_and_dropout() -> None:
    bias = random((200,), "f32")
    check_bits(approximations, (130, 200, 64), ("bf16", "bf16"), None, {"bias": bias})


@pytest.mark.parametrize("shape", [(129, 200, 64), (4, 40, 16), (300, 1000, 320), (1, 4096, 512)])
def test_a_layer_with_the_chosen_configuration(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    x, w, gate = random((m, k), "bf16"), random((n, k), "bf16"), random((n, k), "bf16")
    options: dict[str, Any] = {
        "gate": gate, "activation": "silu", "residual": random((m, n), "bf16"),
        "save": ("preactivation",),
    }  # fmt: skip
    here, there = (
        tilewright.linear(x, w, random((n,), "bf16") * 0, device=device, **options)
        for device in ("cuda", "vm")
    )
    for name in ("y", "preactivation"):
        assert np.array_equal(here[name].view(np.uint16), there[name].view(np.uint16)), name


# --- tensors on the GPU -------------------------------------------------------------------------


def test_tensors_in_place_with_any_strides() -> None:
    torch = pytest.importorskip("torch")
    a, b = (torch.randint(-4, 5, s, device="cuda").half() for s in ((65, 200), (200, 96)))
    residual = torch.randint(-4, 5, (96, 130), device="cuda").half().t()[::2]
    wide = torch.full((65, 192), float("nan"), device="cuda")
    out = wide[:, ::2]
    with torch.cuda.stream(torch.cuda.Stream()):
        got = tilewright.matmul(a, b, epilogue=lambda acc, r: acc + r, r=residual, out=out)
        torch.cuda.current_stream().synchronize()
    assert got is out and bool(wide[:, 1::2].isnan().all())
    assert torch.equal(out.double(), a.double() @ b.double() + residual.double())


def test_a_captured_call_reads_operands_at_each_replay() -> None:
    torch = pytest.importorskip("torch")
    a = torch.randint(-4, 5, (64, 64), device="cuda").half()
    scale, bias = torch.ones(1, device="cuda"), torch.zeros(64, device="cuda")
    out = torch.empty(64, 64, device="cuda")

    @epilogue
    def scaled(acc, scale, bias):
        d = acc * scale + bias
        return {"d": cast(d, "f32"), "amax": amax(d)}

    def call() -> Any:
        return tilewright.matmul(a, a, epilogue=scaled, scale=scale, bias=bias, out=out)

    call()  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()
    for factor, offset in ((2.0, 1.0), (-3.0, 5.0)):
        scale.fill_(factor)
        bias.fill_(offset)
        out.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        expected = factor * (a.double() @ a.double()) + offset
        assert torch.equal(out.double(), expected)
        assert float(result["amax"]) == float(expected.abs().max())
