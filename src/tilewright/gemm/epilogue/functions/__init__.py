"""Functions for epilogues: of traced values, and with the same bits of arrays and numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .... import lazy_imports

if TYPE_CHECKING:
    from .activations import geglu as geglu
    from .activations import gelu as gelu
    from .activations import hardsigmoid as hardsigmoid
    from .activations import hardswish as hardswish
    from .activations import leaky_relu as leaky_relu
    from .activations import relu as relu
    from .activations import relu6 as relu6
    from .activations import silu as silu
    from .activations import swiglu as swiglu
    from .exponentials import erf as erf
    from .exponentials import exp as exp
    from .exponentials import exp2 as exp2
    from .exponentials import log as log
    from .exponentials import log2 as log2
    from .exponentials import sigmoid as sigmoid
    from .exponentials import softplus as softplus
    from .exponentials import tanh as tanh
    from .gradients import dgeglu as dgeglu
    from .gradients import dgelu as dgelu
    from .gradients import dhardsigmoid as dhardsigmoid
    from .gradients import dhardswish as dhardswish
    from .gradients import dleaky_relu as dleaky_relu
    from .gradients import drelu as drelu
    from .gradients import drelu6 as drelu6
    from .gradients import dsigmoid as dsigmoid
    from .gradients import dsilu as dsilu
    from .gradients import dsoftplus as dsoftplus
    from .gradients import dswiglu as dswiglu
    from .gradients import dtanh as dtanh
    from .random_numbers import dropout as dropout
    from .random_numbers import random_bits as random_bits
    from .reduction_outputs import amax as amax
    from .reduction_outputs import bitmask as bitmask
    from .reduction_outputs import max as max
    from .reduction_outputs import sum as sum
    from .selection import absolute as absolute
    from .selection import cast as cast
    from .selection import clamp as clamp
    from .selection import copysign as copysign
    from .selection import fma as fma
    from .selection import isnan as isnan
    from .selection import maximum as maximum
    from .selection import minimum as minimum
    from .selection import reciprocal as reciprocal
    from .selection import rsqrt as rsqrt
    from .selection import sign as sign
    from .selection import sqrt as sqrt
    from .selection import where as where

__getattr__, __dir__ = lazy_imports.exports(__name__, __file__)
