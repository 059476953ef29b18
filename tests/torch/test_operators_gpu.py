"""The operators on a GPU: repeated calls, torch's compiler, CUDA graphs."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]  # torch's own deprecations
F = torch.nn.functional


def normal(*shape: int, dtype: Any = None) -> Any:
    return torch.randn(shape, device="cuda").to(dtype or torch.bfloat16).requires_grad_()


def error(got: Any, want: Any) -> float:
    return float((got.double() - want).abs().max() / want.abs().max())


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("gated", [False, True])
def test_repeated_layers(dtype: str, gated: bool) -> None:
    """Each combination of arguments and activations in turn, several times."""
    if gated and dtype == "float32":
        pytest.skip("two matrices B need kernel tma")
    type_ = getattr(torch, dtype)
    x, w, bias = (normal(*shape, dtype=type_) for shape in ((2, 64, 256), (512, 256), (512,)))
    gate = normal(512, 256, dtype=type_) if gated else None
    r = normal(2, 64, 512, dtype=type_)
    for _ in range(3):
        for activation in (None, "gelu", "relu"):
            for residual in (None, r):
                inputs = [t for t in (x, w, bias, gate, residual) if t is not None]
                y = tilewright.linear(
                    x, w, bias, gate=gate, residual=residual, activation=activation
                )
                got = y, *torch.autograd.grad(y, inputs, torch.ones_like(y))
                wide = {id(t): t.detach().double().requires_grad_() for t in inputs}
                f = getattr(F, activation) if activation else lambda x: x
                want = F.linear(wide[id(x)], wide[id(w)], wide[id(bias)])
                want = f(want) if gate is None else f(F.linear(wide[id(x)], wide[id(gate)])) * want
                want = want if residual is None else want + wide[id(residual)]
                exact = want, *torch.autograd.grad(want, list(wide.values()), torch.ones_like(want))
                with torch.no_grad():
                    assert torch.equal(y, tilewright.linear(
                        x, w, bias, gate=gate, residual=residual, activation=activation
                    ))  # fmt: skip
                assert all(error(*pair) < 0.01 for pair in zip(got, exact, strict=True))


def test_recorded_calls_see_what_makes_another_call() -> None:
    x, w = normal(64, 128), normal(64, 128)
    for _ in range(3):
        assert tilewright.linear(x, w).requires_grad
        assert not tilewright.linear(x.detach(), w.detach()).requires_grad
        with torch.no_grad():
            assert not tilewright.linear(x, w).requires_grad
        frozen = tilewright.linear(x, w.detach())
        assert torch.autograd.grad(frozen.sum(), x)[0].shape == x.shape
        with torch.autocast("cuda", dtype=torch.float16):
            assert tilewright.linear(x, w).dtype == torch.float16
        torch.vmap(lambda x: tilewright.linear(x, w))(x)


@pytest.mark.slow
def test_compiled_by_inductor() -> None:
    inputs = normal(128, 256), normal(512, 256), normal(512)

    def layer(x: Any, w: Any, bias: Any) -> Any:
        return tilewright.linear(x, w, bias, activation="gelu") * 2

    def results(function: Any) -> list[Any]:
        y = function(*inputs)
        return [t.clone() for t in (y, *torch.autograd.grad(y.float().sum(), inputs))]

    want = results(layer)
    for mode in ("default", "reduce-overhead"):
        compiled = torch.compile(layer, fullgraph=True, mode=mode)
        for _ in range(3):
            torch.compiler.cudagraph_mark_step_begin()
            assert all(map(torch.equal, results(compiled), want))


def test_cuda_graphs() -> None:
    x, w, bias = normal(128, 256), normal(512, 256), normal(512)

    def step() -> list[Any]:
        y = tilewright.linear(x, w, bias, activation="silu")
        return [y, *torch.autograd.grad(y, (x, w, bias), torch.ones_like(y))]

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        want = [t.clone() for t in step()]
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = step()
    for t in got:
        t.detach().zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert all(map(torch.equal, got, want))


def test_modules() -> None:
    torch.manual_seed(0)
    tt = tilewright.torch
    layer = torch.nn.Linear(256, 128, device="cuda", dtype=torch.bfloat16)
    x = normal(64, 256)
    choices: list[tuple[Any, dict[str, Any], float]] = [
        (tt.Linear, {}, 0.01), (tt.QuantizedLinear, {"type": "s8"}, 0.03),
        (tt.Fp8Linear, {}, 0.1), (tt.Fp8Linear, {"granularity": "row"}, 0.1),
        (tt.Fp8Linear, {"scaling": "delayed"}, 0.1),
    ]  # fmt: skip
    y = layer(x).double()
    dx = torch.autograd.grad(layer(x), x, torch.ones_like(layer(x)))[0].double()
    for kind, options, bound in choices:
        module = kind.from_linear(layer, **options)
        for _ in range(3):
            found = module(x)
            gradient = torch.autograd.grad(found, x, torch.ones_like(found))[0]
        assert error(found, y) < bound and error(gradient, dx) < bound
    sparse = tt.SparseLinear.from_linear(layer)
    dense = tilewright.compress_24(layer.weight.detach().cpu(), prune="magnitude").decompress()
    assert error(sparse(x), F.linear(x.double(), dense.double().cuda(), layer.bias.double())) < 0.01


def test_rows_that_do_not_exist_are_not_read_where_a_gradient_is_recorded() -> None:
    """An index out of range on the GPU: the row is zeros, and no gradient is written for it."""
    x, w = normal(8, 64), normal(2, 64, 64)
    offsets = torch.tensor([4, 8], dtype=torch.int32, device="cuda")
    gather = torch.tensor([7, 1 << 30, 0, -1, 8, 3, -(1 << 31), 2], device="cuda").int()
    y = tilewright.grouped_matmul(x, w, offsets=offsets, gather=gather)
    exists = (gather >= 0) & (gather < 8)
    rows = x.detach()[torch.where(exists, gather, 0).long()] * exists[:, None]
    want = torch.cat([rows[:4].float() @ w[0].float(), rows[4:].float() @ w[1].float()])
    assert error(y[exists], want[exists].double()) < 0.01
    y[exists].float().sum().backward()
    ones = torch.zeros(8, 64, device="cuda", dtype=torch.float64)
    for i, row in enumerate(gather.tolist()):
        if 0 <= row < 8:
            ones[row] += w[i // 4].detach().double().sum(1)
    assert error(x.grad, ones) < 0.01 and torch.isfinite(w.grad).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_gradients_through_an_epilogue_function(dtype: str) -> None:
    """Repeated, so that the fast paths of both epilogues are taken."""
    type_ = getattr(torch, dtype)
    a, b, bias, scale = (
        normal(*s, dtype=type_) for s in ((2, 64, 256), (256, 512), (512,), (2, 64, 1))
    )
    wide = [t.detach().double().requires_grad_() for t in (a, b, bias, scale)]
    want = F.softplus(wide[0] @ wide[1] + wide[2]) * wide[3]
    exact = want, *torch.autograd.grad(want, wide, torch.ones_like(want))
    for _ in range(3):
        y = tilewright.matmul(
            a, b, bias=bias, scale=scale,
            epilogue=lambda acc, bias, scale: tilewright.softplus(acc + bias) * scale,
        )  # fmt: skip
        got = y, *torch.autograd.grad(y, [a, b, bias, scale], torch.ones_like(y))
        assert all(error(*pair) < 0.02 for pair in zip(got, exact, strict=True))
