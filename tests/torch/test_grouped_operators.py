"""The operators of grouped products and of experts: gradients, compilation, the module."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.vm, pytest.mark.filterwarnings("ignore")]  # torch's own deprecations

import tilewright  # noqa: E402
import tilewright.torch  # noqa: E402
from tilewright.errors import DtypeError, EpilogueError, ProblemError  # noqa: E402

BF16 = torch.bfloat16


def drawn(*shape: int, seed: int = 0) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(*shape, generator=generator) / 4).to(BF16)


def near(ours: Any, theirs: Any) -> None:
    scale = theirs.float().abs().max()
    assert ours.shape == theirs.shape
    assert float((ours.float() - theirs.float()).abs().max()) <= 0.02 * float(scale) + 1e-6


def gradients(function: Any, *arrays: Any) -> tuple[Any, ...]:
    """The result and the gradients of each array."""
    leaves = [t.detach().clone().requires_grad_() for t in arrays]
    result = function(*leaves)
    weights = drawn(*result.shape, seed=9).float()
    (result.float() * weights).sum().backward()
    return result.detach(), *(t.grad for t in leaves)


def by_groups(ends: list[int]) -> Any:
    def product(a: Any, b: Any) -> Any:
        starts = [0, *ends[:-1]]
        pairs = zip(starts, ends, strict=True)
        return torch.cat([a[i:j].float() @ b[g].float() for g, (i, j) in enumerate(pairs)])

    return product


def test_gradients_of_row_groups() -> None:
    a, b, ends = drawn(40, 16), drawn(3, 16, 24, seed=1), [11, 11, 40]
    offsets = torch.tensor(ends, dtype=torch.int32)
    ours = gradients(lambda a, b: tilewright.grouped_matmul(a, b, offsets=offsets), a, b)
    for one, two in zip(ours, gradients(by_groups(ends), a, b), strict=True):
        near(one, two)


def test_rows_of_no_group_have_no_gradient() -> None:
    a, b = drawn(40, 16), drawn(2, 16, 24, seed=1)
    begins = torch.tensor([8, 20, 32])
    ours = gradients(lambda a, b: tilewright.grouped_matmul(a, b, offsets=begins)[8:32], a, b)
    theirs = gradients(lambda a, b: by_groups([12, 24])(a[8:32], b), a, b)
    for one, two in zip(ours, theirs, strict=True):
        near(one, two)


def test_gradients_with_counts() -> None:
    a, b, counts = drawn(2, 16, 16), drawn(2, 16, 24, seed=1), torch.tensor([5, 16])
    _, da, db = gradients(
        lambda a, b: tilewright.grouped_matmul(a, b, counts=counts).flatten(0, 1)[:5], a, b
    )
    weights = drawn(5, 24, seed=9)
    near(da[0, :5], weights.float() @ b[0].float().mT)
    near(db[0], a[0, :5].float().mT @ weights.float())
    assert not da[0, 5:].any() and not da[1].any() and not db[1].any()


def test_gradients_along_k_and_of_gathered_rows() -> None:
    dy, x, ends = drawn(40, 24), drawn(40, 16, seed=1), torch.tensor([11, 11, 40])
    ours = gradients(
        lambda dy, x: tilewright.grouped_matmul(dy.mT, x, offsets=ends, along="k"), dy, x
    )
    theirs = gradients(
        lambda dy, x: torch.stack(
            [dy[i:j].float().mT @ x[i:j].float() for i, j in ((0, 11), (11, 11), (11, 40))]
        ),
        dy, x,
    )  # fmt: skip
    for one, two in zip(ours, theirs, strict=True):
        near(one, two)
    rows, there = torch.tensor([3, 3, 0, 7]), torch.tensor([1, -1, 0, 2])
    a, b, ends = drawn(8, 16), drawn(2, 16, 24, seed=1), torch.tensor([2, 4])
    options = {"offsets": ends, "gather": rows, "scatter": there}
    ours = gradients(lambda a, b: tilewright.grouped_matmul(a, b, **options), a, b)

    def gathered(a: Any, b: Any) -> Any:
        d = by_groups([2, 4])(a[rows], b)
        return torch.stack([d[2], d[0], d[3], torch.zeros_like(d[0])])

    for one, two in zip(ours, gradients(gathered, a, b), strict=True):
        near(one, two)


def test_rows_of_no_group_may_have_any_index() -> None:
    a, b, ends = drawn(8, 16), drawn(2, 16, 24, seed=1), torch.tensor([1, 2, 4])
    options = {
        "offsets": ends, "gather": [99, 3, 0, 7, -1], "scatter": torch.tensor([1, 3, 0, 1, 0]),
    }  # fmt: skip
    ours = gradients(lambda a, b: tilewright.grouped_matmul(a, b, **options), a, b)

    def gathered(a: Any, b: Any) -> Any:
        d = by_groups([1, 3])(a[[3, 0, 7]], b)
        zeros = torch.zeros_like(d[0])
        return torch.stack([d[1], d[2], zeros, d[0], zeros])

    for one, two in zip(ours, gradients(gathered, a, b), strict=True):
        near(one, two)


def test_indices_that_are_not_possible_are_errors() -> None:
    a, b, ends = drawn(8, 16).requires_grad_(), drawn(2, 16, 24), [3, 8]
    for named, error, text in (
        ({"gather": [0, 1, -1, 3, 4, 5, 6, 7]}, ProblemError, r"gather\[2\] must be from 0 to 7"),
        ({"gather": list(range(1, 9))}, ProblemError, r"gather\[7\] must be from 0 to 7, got 8"),
        ({"gather": torch.ones(8)}, DtypeError, "gather must be one of s32, s64"),
        ({"scatter": list(range(4, 12))}, ProblemError, r"scatter\[4\] must be from -1 to 7"),
        ({"scatter": [-2, *range(7)]}, ProblemError, r"scatter\[0\] must be from -1 to 7"),
        ({"scatter": [0, *range(7)]}, ProblemError, "scatter must differ, got 0 at 0 and at 1"),
        ({"scatter": [0, 1]}, ProblemError, "scatter must have 8 elements"),
        ({"offsets": "ab"}, ProblemError, "offsets must be integers"),
        (
            {"along": "k", "b": b[0], "gather": [0]},
            ProblemError,
            "must come with offsets of groups",
        ),
        ({"operand": 1}, TypeError, "unexpected arguments operand"),
    ):
        with pytest.raises(error, match=text):
            tilewright.grouped_matmul(**({"a": a, "b": b, "offsets": ends} | named))


CHOICES = torch.tensor([[0, 2], [2, 1], [-1, 0], [1, 2], [0, 1]])


def layer(x: Any, up: Any, gate: Any, down: Any, weights: Any) -> Any:
    return tilewright.moe(x, up, gate, down, CHOICES, weights)


def by_tokens(x: Any, up: Any, gate: Any, down: Any, weights: Any) -> Any:
    rows = []
    for t, row in enumerate(x.float()):
        y = torch.zeros(x.shape[1])
        for j, e in enumerate(CHOICES[t].tolist()):
            if e >= 0:
                inner = torch.nn.functional.silu(gate[e].float() @ row) * (up[e].float() @ row)
                y = y + weights[t, j].float() * (down[e].float() @ inner)
        rows.append(y)
    return torch.stack(rows)


def experts() -> tuple[Any, ...]:
    up, gate, down = (drawn(3, *s, seed=i) for i, s in enumerate(((24, 16), (24, 16), (16, 24))))
    weights = torch.rand(5, 2, generator=torch.Generator().manual_seed(3))
    return 4 * drawn(5, 16, seed=4), 4 * up, 4 * gate, 4 * down, weights


def test_gradients_of_a_layer_of_experts() -> None:
    ours, theirs = (gradients(f, *experts()) for f in (layer, by_tokens))
    for one, two in zip(ours, theirs, strict=True):
        near(one, two)
    with torch.no_grad():
        near(layer(*experts()), ours[0])


def test_arguments_of_experts_are_checked_where_gradients_are_recorded() -> None:
    x, up, gate, down, weights = experts()
    x.requires_grad_()
    for arrays, error, text in (
        ((x, up, gate, down, CHOICES, weights.T.contiguous().T), ProblemError, "contiguous"),
        ((x, up, gate, down, CHOICES, weights[:2]), ProblemError, "weights must have shape"),
        ((x, up, gate, down[:2], CHOICES, weights), ProblemError, "w_down must have shape"),
        ((x, up, gate, down, CHOICES[:3], weights[:3]), ProblemError, "indices must have shape"),
        ((x, up, gate, down, CHOICES.float(), weights), DtypeError, "indices must be one of"),
        ((x, up, gate, down, None, weights), ProblemError, "indices must be a tensor"),
    ):
        with pytest.raises(error, match=text):
            tilewright.moe(*arrays)


def test_operators_are_registered_whole() -> None:
    x, up, gate, down, weights = experts()
    ends, order = torch.tensor([2, 5, 5], dtype=torch.int32), torch.tensor([4, 2, 0, 1, 3])
    given = [t.requires_grad_() for t in (x, up, gate, down)]
    for name, arrays in (
        ("grouped_matmul", (given[0], drawn(3, 16, 24).requires_grad_(), ends)),
        ("grouped_matmul", (given[0], drawn(3, 16, 24).requires_grad_(), ends, order, order)),
        ("moe", (*given, CHOICES, weights)),
        ("moe_saved", (*given, CHOICES, weights)),
    ):
        operator = getattr(torch.ops.tilewright, name).default
        torch.library.opcheck(operator, arrays)


def test_a_module_trains_and_compiles() -> None:
    torch.manual_seed(0)
    module = tilewright.torch.MoE(16, 32, 4, 2, dtype=BF16)
    x = drawn(2, 6, 16)
    eager = module(x)
    assert eager.shape == x.shape
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    near(compiled(x), eager)
    compiled(x).float().square().sum().backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None and parameter.grad.any(), name
    indices, found, logits = module.route(x.reshape(-1, 16))
    assert (indices.shape, found.shape, logits.shape) == ((12, 2), (12, 2), (12, 4))
    assert "top_k=2" in repr(module)


def test_autocast() -> None:
    module = tilewright.torch.MoE(16, 32, 4, 2)
    with torch.autocast("cpu", BF16):
        assert module(torch.randn(3, 16)).dtype is BF16


def test_what_records_no_gradient_is_an_error() -> None:
    a, b, ends = drawn(40, 16).requires_grad_(), drawn(3, 16, 24), torch.tensor([11, 11, 40])
    with pytest.raises(EpilogueError, match="epilogue must be None"):
        tilewright.grouped_matmul(a, (b, b), offsets=ends, epilogue=lambda x, y: x * y)
    with pytest.raises(ProblemError, match="out must be None"):
        tilewright.grouped_matmul(a, b, offsets=ends, out=drawn(40, 24))
    with pytest.raises(DtypeError, match="a must be f16 or bf16"):
        tilewright.grouped_matmul(
            a.detach().float().requires_grad_(), b.float(), offsets=ends, precision="tf32"
        )
    with pytest.raises(EpilogueError, match="activation must be one of"):
        tilewright.torch.MoE(16, 32, 4, 2, activation="gleu")
    with pytest.raises(ProblemError, match="top_k must be at most"):
        tilewright.torch.MoE(16, 32, 4, 5)
