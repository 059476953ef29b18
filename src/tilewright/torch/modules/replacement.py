"""``replace``: swaps a model's linear layers, and says what it did and what it left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any

import torch
from torch.nn import Module

from ...errors import ProblemError, TilewrightError
from .fp8_linear_module import Fp8Linear
from .linear_module import Linear
from .quantized_linear import QuantizedLinear
from .sparse_linear import SparseLinear

LAYERS: dict[str, Any] = {
    "linear": Linear,
    "quantized": QuantizedLinear,
    "fp8": Fp8Linear,
    "sparse": SparseLinear,
}
_TYPES = {
    "linear": (torch.float16, torch.bfloat16, torch.float32, torch.float64),
    "quantized": (torch.float16, torch.bfloat16),
    "fp8": (torch.float16, torch.bfloat16, torch.float32),
    "sparse": (torch.float16, torch.bfloat16, torch.float32),
}
_FROZEN = "quantized", "sparse"
_FP8_MULTIPLE = 16


@dataclass(frozen=True)
class Replaced:
    """A layer that was replaced."""

    name: str
    old: str
    new: str


@dataclass(frozen=True)
class Left:
    """A linear layer that was left, and why."""

    name: str
    module: str
    reason: str


@dataclass(frozen=True)
class Replacements:
    """What ``replace`` did. ``others``: the number of other modules with parameters, by type."""

    replaced: tuple[Replaced, ...]
    left: tuple[Left, ...]
    others: dict[str, int]

    def __str__(self) -> str:
        lines = [f"replaced {len(self.replaced)} linear layers, left {len(self.left)}"]
        lines += [f"  {row.name}: {row.old} → {row.new}" for row in self.replaced]
        lines += [f"  {row.name}: {row.module} left: {row.reason}" for row in self.left]
        if self.others:
            counts = ", ".join(f"{count} {name}" for name, count in self.others.items())
            lines.append(f"  not linear layers: {counts}")
        return "\n".join(lines)


def replace(
    model: Module, by: str = "linear", *, skip: Sequence[str] = (), **options: Any
) -> Replacements:
    """Replace each ``torch.nn.Linear`` of a model, in place.

    ``by``: ``"linear"``, ``"quantized"``, ``"fp8"`` or ``"sparse"``; ``options`` are those of the
    layer's ``from_linear``. ``skip``: names or patterns (``"*.head"``) of layers to leave. Others
    that are left: subclasses of Linear, layers with hooks or parametrizations, types and shapes
    that the layer does not take, and weights that another module shares, where they would be
    quantized or pruned.

    >>> print(tilewright.torch.replace(model, "quantized", type="u4", group=128, skip=["lm_head"]))

    Raises ProblemError for an unknown layer, or if the model itself is a linear layer.
    """
    if by not in LAYERS:
        raise ProblemError(f"by must be one of {', '.join(LAYERS)}, got {by!r:.60}")
    if isinstance(model, torch.nn.Linear):
        raise ProblemError(
            "model must contain linear layers, got one itself",
            hint=f"tilewright.torch.{LAYERS[by].__name__}.from_linear(model)",
        )
    users = _users(model)
    made: dict[torch.nn.Linear, Module] = {}
    replaced, left = [], []
    for name, module in model.named_modules():
        if not isinstance(module, torch.nn.Linear):
            continue
        reason = _reason(name, module, by, skip, users)
        if not reason:
            try:
                made[module] = LAYERS[by].from_linear(module, **options)
                replaced.append(Replaced(name, _text(module), _text(made[module])))
                continue
            except TilewrightError as error:
                reason = str(error).partition("\n")[0]
        left.append(Left(name, _text(module), reason))
    for parent in list(model.modules()):
        for key, child in list(parent._modules.items()):  # named_children leaves out repeats
            if child in made:
                setattr(parent, key, made[child])
    return Replacements(tuple(replaced), tuple(left), _others(model))


def _reason(
    name: str, module: torch.nn.Linear, by: str, skip: Sequence[str], users: Counter[int]
) -> str:
    """Why a layer is left; "" if it is not."""
    if any(fnmatch(name, pattern) for pattern in skip):
        return "named in skip"
    if isinstance(module, Linear):
        return "it is a layer of tilewright"
    if type(module) is not torch.nn.Linear:
        return "a subclass of Linear may be used in other ways"
    if torch.nn.utils.parametrize.is_parametrized(module):
        return "its parameters are parametrized"
    if any(_hooks(module)):
        return "it has hooks"
    if module.weight.dtype not in _TYPES[by]:
        return f"weights of {module.weight.dtype} are not supported"
    if by in _FROZEN and users[id(module.weight)] > 1:
        return "another module shares its weights"
    sizes = module.in_features, module.out_features
    if by == "fp8" and any(size % _FP8_MULTIPLE for size in sizes):
        return f"its sizes are no multiples of {_FP8_MULTIPLE}"
    return ""


def _hooks(module: Module) -> Iterator[Any]:
    for name, value in vars(module).items():
        if name.endswith("_hooks"):
            yield value


def _users(model: Module) -> Counter[int]:
    """How many modules have each parameter, by its identity."""
    return Counter(
        id(parameter)
        for module in model.modules()
        for parameter in module._parameters.values()
        if parameter is not None
    )


def _others(model: Module) -> dict[str, int]:
    kinds = (torch.nn.Linear, *LAYERS.values())
    return dict(Counter(
        type(module).__name__ for module in model.modules()
        if not isinstance(module, kinds) and any(True for _ in module.parameters(recurse=False))
    ))  # fmt: skip


def _text(module: Module) -> str:
    return f"{type(module).__name__}({module.extra_repr()})"
