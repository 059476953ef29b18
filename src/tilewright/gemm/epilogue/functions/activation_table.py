"""Activations by name, and their backward functions: of the output's gradient and the input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import activations, exponentials, gradients

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "relu": activations.relu,
    "relu6": activations.relu6,
    "leaky_relu": activations.leaky_relu,
    "gelu": activations.gelu,
    "gelu_tanh": lambda x: activations.gelu(x, approximate="tanh"),
    "silu": activations.silu,
    "sigmoid": exponentials.sigmoid,
    "tanh": exponentials.tanh,
    "softplus": exponentials.softplus,
    "hardswish": activations.hardswish,
}
DERIVATIVES: dict[str, Callable[[Any, Any], Any]] = {
    "relu": gradients.drelu,
    "relu6": gradients.drelu6,
    "leaky_relu": gradients.dleaky_relu,
    "gelu": gradients.dgelu,
    "gelu_tanh": lambda dy, x: gradients.dgelu(dy, x, approximate="tanh"),
    "silu": gradients.dsilu,
    "sigmoid": gradients.dsigmoid,
    "tanh": gradients.dtanh,
    "softplus": gradients.dsoftplus,
    "hardswish": gradients.dhardswish,
}
