"""Cost model of kernel ``simt``: estimated seconds of candidates, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...target import DeviceSpec
from ..columns import Column, tile_count
from ..problem import Problem
from . import multistage_cost
