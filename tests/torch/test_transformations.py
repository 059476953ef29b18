"""Compilers and transformations of torch over the operators, on the virtual machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tilewright
from tilewright.errors import EpilogueError

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.vm, pytest.mark.filterwarnings("ignore")]  # torch's own deprecations
F = torch.nn.functional
VM = {"device": "vm"}
M, K, N = 6, 16, 16


@pytest.fixture
def tensors() -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    return torch.randn(M, K), torch.randn(N, K), torch.randn(N)


def layer(x: Any, w: Any, bias: Any) -> Any:
    return tilewright.linear(x, w, bias, activation="silu", **VM)


def torchs(x: Any, w: Any, bias: Any) -> Any:
    return F.silu(F.linear(x, w, bias))


def two_products(x: Any, w: Any, bias: Any) -> Any:
    return tilewright.matmul(layer(x, w, bias) * 2, w, alpha=0.5, **VM).sum()


def test_compiled_functions_have_no_graph_break(tensors: tuple[Any, Any, Any]) -> None:
    inputs = [t.requires_grad_() for t in tensors]
    for dynamic in (False, True):
        compiled = torch.compile(two_products, backend="aot_eager", fullgraph=True, dynamic=dynamic)
        one, two = two_products(*inputs), compiled(*inputs)
        assert torch.equal(one, two)
        for eager, traced in zip(
            *(torch.autograd.grad(y, inputs) for y in (one, two)), strict=True
        ):
            assert torch.equal(eager, traced)
        with torch.no_grad():
            assert torch.equal(compiled(*inputs), one)


def test_what_a_compiler_cannot_trace_runs_between_graphs(tensors: tuple[Any, Any, Any]) -> None:
    x, w, _ = tensors

    def doubled(x: Any, w: Any) -> Any:
        return tilewright.matmul(x + 1, w, epilogue=lambda acc: acc * 2.0, **VM) + 1

    assert torch.equal(torch.compile(doubled, backend="aot_eager")(x, w), doubled(x, w))


@tilewright.kernel(params={"x": "ptr f32", "y": "ptr f32"}, block=32)
def plus_one(k, x, y):
    y[k.tid.x] = x[k.tid.x] + 1.0


def launched(x: Any) -> Any:
    y = torch.zeros(32)
    plus_one[1](x.flatten(), y, device="vm")
    return y


MEMORY: dict[str, Callable[[Any], Any]] = {
    "kernels": lambda x: tilewright.kernels.softmax(x, **VM),
    "quantize": lambda x: tilewright.quantize(x, "s8", "row").data,
    "quantize_weight": lambda x: tilewright.quantize_weight(x, "s4", group=16).data,
    "compress_24": lambda x: tilewright.compress_24(x.half(), prune="magnitude").values,
    "plan": lambda x: PLAN.run(x, torch.ones(16, 4)),
    "launch": launched,
}
PLAN = tilewright.plan(torch.ones(M, 16), torch.ones(16, 4), **VM)


@pytest.mark.parametrize("name", MEMORY)
def test_what_computes_on_memory_runs_between_graphs(name: str) -> None:
    def computed(x: Any) -> Any:
        return MEMORY[name](x * 2) + 1

    x = torch.randn(M if name == "plan" else 2, 16)
    torch.compiler.reset()
    assert torch.equal(torch.compile(computed, backend="aot_eager")(x), computed(x))


def test_export(tensors: tuple[Any, Any, Any]) -> None:
    class Layer(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.w, self.bias = map(torch.nn.Parameter, tensors[1:])

        def forward(self, x: Any) -> Any:
            return layer(x, self.w, self.bias)

    module, x = Layer(), tensors[0]
    rows = {"x": {0: torch.export.Dim("rows", min=2)}}
    program = torch.export.export(module, (x,), dynamic_shapes=rows)
    assert "tilewright.linear" in str(program.graph)
    for some in (x, x[:5].clone()):
        assert torch.equal(program.module()(some), module(some))


def test_tensors_without_memory(tensors: tuple[Any, Any, Any]) -> None:
    from torch._subclasses import FakeTensorMode

    for mode in (FakeTensorMode(), torch.device("meta")):
        with mode:
            x, w, bias = (torch.empty(t.shape, dtype=torch.bfloat16) for t in tensors)
            y = layer(x, w, bias)
            d = tilewright.matmul(x[None], w, out_dtype="f32", **VM)
        assert (y.shape, y.dtype) == ((M, N), torch.bfloat16)
        assert (d.shape, d.dtype) == ((1, M, N), torch.float32)
        with pytest.raises(RuntimeError, match="as many columns"), mode:
            layer(x, w[:, 1:], bias)


PRODUCTS = [
    ((0, None), (3, M, K), (K, N)), ((None, 2), (M, K), (K, N, 3)), ((1, 0), (M, 3, K), (3, K, N)),
    ((0, 0), (3, K), (3, K)), ((0, None), (3, K), (K, N)), ((0, 0), (3, 2, M, K), (3, K, N)),
]  # fmt: skip


@pytest.mark.parametrize(("dims", "a", "b"), PRODUCTS)
def test_vmap_of_products(dims: Any, a: Any, b: Any) -> None:
    def product(a: Any, b: Any) -> Any:
        return tilewright.matmul(a, b, **VM)

    inputs = torch.randn(a), torch.randn(b)
    want = torch.vmap(torch.matmul, dims)(*inputs)
    torch.testing.assert_close(torch.vmap(product, dims)(*inputs), want)


def test_vmap_of_layers(tensors: tuple[Any, Any, Any]) -> None:
    x, w, bias = tensors
    rows = torch.vmap(layer, (0, None, None))(x, w, bias)
    assert torch.equal(rows, layer(x, w, bias))
    many = torch.stack([w, -w])
    each = torch.vmap(layer, (None, 0, None))(x, many, bias)
    assert torch.equal(each, torch.stack([layer(x, one, bias) for one in many]))


def test_per_sample_gradients(tensors: tuple[Any, Any, Any]) -> None:
    x, w, bias = tensors

    def per_sample(layer: Any) -> Any:
        def loss(w: Any, bias: Any, x: Any) -> Any:
            return layer(x, w, bias).sum()

        return torch.vmap(torch.func.grad(loss, (0, 1)), (None, None, 0))(w, bias, x)

    torch.testing.assert_close(per_sample(layer), per_sample(torchs), rtol=1e-5, atol=1e-5)


def test_autocast(tensors: tuple[Any, Any, Any]) -> None:
    inputs = [t.requires_grad_() for t in tensors]
    low = [t.bfloat16() for t in inputs]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, d = layer(*inputs), tilewright.matmul(inputs[0], inputs[1], **VM)
    assert torch.equal(y, layer(*low)) and torch.equal(d, tilewright.matmul(*low[:2], **VM))
    assert [g.dtype for g in torch.autograd.grad(y.sum(), inputs)] == [torch.float32] * 3


def test_operations_are_counted(tensors: tuple[Any, Any, Any]) -> None:
    inputs = [t.requires_grad_() for t in tensors]
    with torch.utils.flop_counter.FlopCounterMode(display=False) as counter:
        layer(*inputs).sum().backward()
    assert counter.get_total_flops() == 3 * 2 * M * N * K


def test_checkpointing(tensors: tuple[Any, Any, Any]) -> None:
    inputs = [t.requires_grad_() for t in tensors]
    again = torch.utils.checkpoint.checkpoint(two_products, *inputs, use_reentrant=False)
    got, want = (torch.autograd.grad(y, inputs) for y in (again, two_products(*inputs)))
    assert all(map(torch.equal, got, want))


def test_an_activation_that_is_a_function_is_not_traced(tensors: tuple[Any, Any, Any]) -> None:
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode(), pytest.raises(EpilogueError, match="for fake and for wrapped tensors"):
        tilewright.linear(torch.empty(M, K), torch.empty(N, K), activation=tilewright.gelu)
