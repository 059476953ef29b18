"""The modules and ``replace``: beside torch's layers, on the virtual machine and by NumPy."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import tilewright
from tilewright.errors import DtypeError, EpilogueError, ProblemError

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.vm, pytest.mark.filterwarnings("ignore")]  # torch's own deprecations
F = torch.nn.functional
VM = {"run_on": "vm"}
M, K, N = 16, 128, 64
BF16 = torch.bfloat16


@pytest.fixture
def tt() -> Any:
    torch.manual_seed(0)
    return tilewright.torch


@pytest.fixture
def layer() -> Any:
    torch.manual_seed(1)
    return torch.nn.Linear(K, N, dtype=BF16)


def error(got: Any, want: Any) -> float:
    """The largest error relative to the largest magnitude."""
    return float((got.double() - want.double()).abs().max() / want.double().abs().max())


def with_gradients(module: Any, *more: Any) -> list[Any]:
    """The output for a random x, its gradients of x, the bias and ``more``."""
    torch.manual_seed(2)
    x = torch.randn(M, K).to(BF16).requires_grad_()
    y = module(x)
    dy = torch.randn(M, N).to(y.dtype)
    return [y, *torch.autograd.grad(y, [x, module.bias, *more], dy)]


def in_f64(layer: Any, weight: Any, activation: Any = None) -> list[Any]:
    """The same of torch's layer with other weights."""
    wide = copy.deepcopy(layer).double()
    wide.weight.data = weight.double()

    class Wide(torch.nn.Module):  # type: ignore[misc, name-defined]
        bias = wide.bias

        def forward(self, x: Any) -> Any:
            y = wide(x.double())
            return y if activation is None else activation(y)

    return with_gradients(Wide())


def compiled(module: Any) -> Any:
    return torch.compile(module, fullgraph=True, backend="aot_eager")


def quantized_calls() -> dict[str, tuple[tuple[Any, ...], dict[str, Any]]]:
    """Arguments of each operator of quantized and sparse matrices."""
    torch.manual_seed(0)
    quantize = tilewright.torch.quantized_operators.call
    x, w = (torch.randn(n, K, dtype=BF16) for n in (M, N))
    bias, given = torch.randn(N, dtype=BF16), x.clone().requires_grad_()
    packed = tilewright.quantize_weight(w, "u4", 64, "integer")
    sparse = tilewright.compress_24(w, prune="magnitude")
    rows = [t for matrix in (x, w) for t in quantize("quantize", matrix, "e4m3", "row")]
    arrays = packed.data, packed.scales, packed.zeros, None, None, None, bias
    vm = {"device": "vm"}
    return {
        "quantize": ((x, "e4m3", "row"), {}),
        "quantize 1x128": ((x, "e5m2", "1x128"), {"scale_dtype": "bf16"}),
        "quantize_with_scale": ((x, torch.tensor(0.02)), vm),
        "scaled_linear": ((*rows, bias), vm),
        "fp8_linear": ((given, w.clone().requires_grad_(), bias), vm),
        "packed_linear": ((given, *arrays), {"type": "u4", "group": 64, **vm}),
        "sparse_linear": ((given, sparse.values, sparse.metadata, bias), {"type": "bf16", **vm}),
    }


NAMES = ["quantize", "quantize 1x128", "quantize_with_scale", "scaled_linear", "fp8_linear"]


@pytest.mark.parametrize("name", [*NAMES, "packed_linear", "sparse_linear"])
def test_opcheck_of_quantized_operators(tt: Any, name: str) -> None:
    """torch's check of the schema multiplies the tensors, which 8-bit floats have no kernel for."""
    arrays, options = quantized_calls()[name]
    operator = getattr(torch.ops.tilewright, name.split()[0]).default
    checks = ["test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"]
    checks += ["test_schema"] * (name != "scaled_linear")
    found = torch.library.opcheck(operator, arrays, options, test_utils=checks)
    assert set(found.values()) == {"SUCCESS"}


def test_packed_weights_under_autocast(tt: Any, layer: Any) -> None:
    mine = tt.QuantizedLinear.from_linear(layer, "u8", 64, **VM)
    x = torch.randn(M, K)
    with torch.autocast("cpu", dtype=BF16):
        assert torch.equal(mine(x), mine(x.to(BF16)))


def test_a_given_scale_quantizes_to_the_same_bits(tt: Any) -> None:
    x = torch.randn(M, K, dtype=BF16)
    data, scale = torch.ops.tilewright.quantize(x, "e4m3", "tensor")
    again, amax = torch.ops.tilewright.quantize_with_scale(x, scale, device="vm")
    assert torch.equal(again.view(torch.uint8), data.view(torch.uint8))
    assert float(amax) == float(x.abs().max())


def test_linear(tt: Any, layer: Any) -> None:
    mine = tt.Linear.from_linear(layer, activation="silu", **VM)
    assert mine.weight is layer.weight and mine.state_dict().keys() == layer.state_dict().keys()
    want = in_f64(layer, layer.weight, F.silu)
    got = with_gradients(mine)
    assert all(error(*pair) < 0.01 for pair in zip(got, want, strict=True))
    assert all(map(torch.equal, with_gradients(compiled(mine)), got))
    assert "activation=silu" in repr(mine)
    with pytest.raises(EpilogueError, match="activation must be one of relu"):
        tt.Linear(8, 8, activation="softmax")


@pytest.mark.parametrize("activation", [None, "gelu"])
def test_quantized_linear(tt: Any, layer: Any, activation: str | None) -> None:
    mine = tt.QuantizedLinear.from_linear(layer, "u4", 64, "integer", activation=activation, **VM)
    function = None if activation is None else getattr(F, activation)
    want = in_f64(layer, mine.weights.dequantize(), function)
    got = with_gradients(mine)
    assert all(error(*pair) < 0.01 for pair in zip(got, want, strict=True))
    assert all(map(torch.equal, with_gradients(compiled(mine)), got))
    scales = mine.scales.dtype
    assert mine.half().scales.dtype == scales and mine.bias.dtype == torch.float16
    other = tt.QuantizedLinear.from_linear(torch.nn.Linear(K, N, dtype=BF16), "u4", 64, "integer")
    other.load_state_dict(mine.state_dict())
    assert torch.equal(other.data, mine.data) and torch.equal(other.scales, mine.scales)


def test_written_weights_are_read_again(tt: Any, layer: Any) -> None:
    mine = tt.QuantizedLinear.from_linear(layer, "u8", 64, **VM)
    x = torch.randn(M, K).to(BF16)
    with torch.no_grad():
        before = mine(x) - mine.bias
        mine.scales.mul_(2)
        assert error(mine(x) - mine.bias, 2 * before) < 0.02


def test_sparse_linear(tt: Any, layer: Any) -> None:
    mine = tt.SparseLinear.from_linear(layer, **VM)
    want = in_f64(layer, mine.weights.decompress())
    got = with_gradients(mine)
    assert all(error(*pair) < 0.01 for pair in zip(got, want, strict=True))
    assert all(map(torch.equal, with_gradients(compiled(mine)), got))


def test_a_sparse_matrix_on_the_left(tt: Any, layer: Any) -> None:
    """``matmul(w, x)`` records the gradient of x, is traced, and under autocast takes other x."""
    w, x = tt.SparseLinear.from_linear(layer).weights, torch.randn(K, M).to(BF16).requires_grad_()
    y = tilewright.matmul(w, x, device="vm")
    dense = w.decompress().double()
    assert error(y, dense @ x.double()) < 0.01
    dx = torch.autograd.grad(y.sum(), x)[0]
    assert error(dx, dense.sum(0)[:, None].expand_as(x)) < 0.01
    traced = compiled(lambda x: tilewright.matmul(w, x, device="vm"))
    assert torch.equal(traced(x), y)
    with torch.autocast("cpu", dtype=torch.float16):
        assert torch.equal(tilewright.matmul(w, x.float(), device="vm"), y)
        assert torch.equal(tt.SparseLinear(w, **VM)(x.mT.float()), y.mT)


def test_a_sparse_linear_in_another_type(tt: Any, layer: Any) -> None:
    """bf16 weights become f16 as those of torch's layer do; no others change their pattern."""
    mine = tt.SparseLinear.from_linear(layer, **VM).half()
    assert mine.type == "f16" and mine.values.dtype == mine.bias.dtype == torch.float16
    x = torch.randn(M, K).half()
    want = F.linear(x.double(), mine.weights.decompress().double(), mine.bias.double())
    assert error(mine(x), want) < 0.01
    for convert in (mine.float, mine.double):
        with pytest.raises(DtypeError, match="must become float16 or bfloat16"):
            convert()
    assert mine(x).dtype == mine.to(BF16).half().values.dtype == torch.float16
    of_tf32 = tt.SparseLinear.from_linear(torch.nn.Linear(K, N), **VM)
    with pytest.raises(DtypeError, match=r"values of torch\.float32"):
        of_tf32.half()
    assert of_tf32.type == "tf32"


def test_sparse_packed_weights(tt: Any, layer: Any) -> None:
    """As a layer, whose state dict has the metadata, and in a call: the gradient of x, too."""
    mine = tt.QuantizedLinear.from_linear(layer, "u4", 64, prune="magnitude", **VM)
    w = mine.weights
    assert "2:4 sparse u4 per 64" in repr(mine) and "SparsePacked" in repr(w)
    want, got = in_f64(layer, w.dequantize()), with_gradients(mine)
    assert all(error(*pair) < 0.01 for pair in zip(got, want, strict=True))
    assert all(map(torch.equal, with_gradients(compiled(mine)), got))
    x = torch.randn(M, K).to(BF16).requires_grad_()
    y = tilewright.linear(x, w, mine.bias, device="vm")
    assert torch.equal(y, mine(x)) and torch.equal(y, tilewright.matmul(
        x.detach(), w.T, device="vm", epilogue=tilewright.epilogue(lambda x, bias: x + bias),
        bias=mine.bias.detach(),
    ))  # fmt: skip
    front = (torch.arange(K) % 4 < 2).expand(N, K)
    other = tt.QuantizedLinear.from_linear(layer, "u4", 64, prune=front, **VM)
    assert not torch.equal(other(x), mine(x))
    other.load_state_dict(mine.state_dict())
    assert torch.equal(other(x), mine(x))
    with pytest.raises(ProblemError, match="weights must be a matrix N×K, not transposed"):
        tt.QuantizedLinear(w.T)
    with pytest.raises(ProblemError, match="weights must be Packed, got Sparse24"):
        tt.QuantizedLinear(tt.SparseLinear.from_linear(layer).weights)


def test_packed_and_sparse_weights_of_a_call(tt: Any, layer: Any) -> None:
    """``linear`` and ``matmul`` with such values record the gradient of x."""
    packed = tilewright.quantize_weight(layer.weight.detach(), "s8", 128)
    x = torch.randn(M, K).to(BF16).requires_grad_()
    for y in (
        tilewright.linear(x, packed, device="vm"),
        tilewright.matmul(x, packed.T, device="vm"),
    ):
        dx = torch.autograd.grad(y.sum(), x)[0]
        assert error(dx, packed.dequantize().sum(0).expand_as(x)) < 0.01
    with pytest.raises(ProblemError, match="c must be left out with packed"):
        tilewright.matmul(x, packed.T, c=y, beta=1.0, device="vm")
    with pytest.raises(DtypeError, match="quantize must not be given a tensor that requires"):
        torch.ops.tilewright.quantize(x)


@pytest.mark.parametrize(
    "options", [{}, {"granularity": "row"}, {"scaling": "delayed", "history": 2}], ids=str
)
def test_fp8_linear(tt: Any, layer: Any, options: dict[str, Any]) -> None:
    """Elements have 3 bits of mantissa, those of the gradient 2."""
    mine = tt.Fp8Linear.from_linear(layer, **options, **VM)
    traced = compiled(copy.deepcopy(mine))
    want = in_f64(layer, layer.weight)[:3]
    for _ in range(3 if options else 1):  # the first step of delayed scaling has no history
        got = with_gradients(mine, mine.weight)
        other = with_gradients(traced, traced.weight)
        assert all(map(torch.equal, other, got))
    assert all(error(*pair) < 0.12 for pair in zip(got, want, strict=False))
    if "scaling" in options:
        assert all(map(torch.equal, traced.state_dict().values(), mine.state_dict().values()))
        assert (mine.amax_history > 0).all() and mine.bfloat16().amaxes.dtype == torch.float32
        before = mine.amax_history.clone()
        mine.eval()(torch.randn(M, K).to(BF16))
        assert torch.equal(mine.amax_history, before)


class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(K, K)
        self.block = torch.nn.Sequential(torch.nn.Linear(K, 256), torch.nn.Linear(256, K))
        self.again = self.block[0]
        self.attention = torch.nn.MultiheadAttention(K, 2)
        self.odd = torch.nn.Linear(K, 10)
        self.head = torch.nn.Linear(K, K)
        self.head.weight = self.embedding.weight
        self.hooked = torch.nn.Linear(K, K)
        self.hooked.register_forward_hook(lambda *_: None)


@pytest.mark.parametrize("scaling", ["dynamic", "delayed"])
def test_an_fp8_layer_of_no_rows(tt: Any, layer: Any, scaling: str) -> None:
    made = tt.Fp8Linear.from_linear(layer, scaling=scaling, run_on="vm")
    x = torch.empty(2, 0, layer.in_features, requires_grad=True)
    y = made(x)
    y.sum().backward()
    assert (y.shape, x.grad.shape) == ((2, 0, layer.out_features), x.shape)
    assert not made.weight.grad.any()


def test_replace_says_what_it_did_and_what_it_left(tt: Any) -> None:
    model = Model().to(BF16)
    report = tt.replace(model, "fp8", skip=["block.1"], **VM)
    assert [row.name for row in report.replaced] == ["block.0", "head"]
    assert isinstance(model.block[0], tt.Fp8Linear) and model.again is model.block[0]
    assert model.head.weight is model.embedding.weight
    assert {row.name: row.reason for row in report.left} == {
        "block.1": "named in skip",
        "attention.out_proj": "a subclass of Linear may be used in other ways",
        "odd": "its sizes are no multiples of 16",
        "hooked": "it has hooks",
    }
    assert report.others == {"Embedding": 1, "MultiheadAttention": 1}
    assert str(report).startswith("replaced 2 linear layers, left 4\n  block.0: Linear(in_")


def test_replace_leaves_shared_weights_and_what_a_layer_refuses(tt: Any) -> None:
    model = Model().to(BF16)
    left = {r.name: r.reason for r in tt.replace(model, "quantized", group=256, **VM).left}
    assert left["head"] == "another module shares its weights"
    assert left["block.0"] == "group must divide K = 128, got 256"
    assert isinstance(model.block[1], tt.QuantizedLinear)
    with pytest.raises(ProblemError, match="by must be one of linear, quantized"):
        tt.replace(model, "int3")
    with pytest.raises(ProblemError, match="model must contain linear layers"):
        tt.replace(torch.nn.Linear(8, 8))


def test_replace_finds_a_layer_under_each_of_its_names(tt: Any) -> None:
    layer = torch.nn.Linear(32, 32)
    model = torch.nn.Sequential(layer, torch.nn.ReLU(), layer)
    tt.replace(model, "linear", **VM)
    assert isinstance(model[0], tt.Linear) and model[2] is model[0]


def test_a_state_dict_has_all_that_a_layer_needs(tt: Any) -> None:
    source = tt.Fp8Linear(32, 16, scaling="delayed", **VM)
    loaded = tt.Fp8Linear(32, 16, scaling="delayed", device="meta", **VM).to_empty(device="cpu")
    assert {name for name, _ in loaded.named_buffers()} <= set(source.state_dict())
    loaded.load_state_dict(source.state_dict())
    x = torch.randn(4, 32)
    assert torch.equal(loaded.eval()(x), source.eval()(x))
