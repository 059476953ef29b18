"""``expected_rows`` of ``grouped_matmul``: the configuration is chosen for them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

import tilewright
from references.grouped_products import GroupedCase, check, operands
from tilewright import gemm
from tilewright.errors import ProblemError
from tilewright.run.call.grouped.row_groups import GroupArguments
from tilewright.run.call.request import MatmulOptions
from tilewright.target import DEFAULT_DEVICE

pytestmark = pytest.mark.vm


@pytest.mark.parametrize("capacity", [0, 400], ids=["offsets", "counts"])
def test_the_configuration_is_that_of_the_expected_rows(capacity: int) -> None:
    case = GroupedCase((3, 0, 9, 1), 256, 64, capacity=capacity, after=1600 * (not capacity))
    a, b, sizes, out = operands(case)
    call: Any = import_module("tilewright.run.call.grouped.grouped_matmul")
    given = GroupArguments(sizes.get("offsets"), sizes.get("counts"), "m")
    chosen = {}
    for expected in (None, 4):
        launched: Any = call._launch(
            a, b, given._replace(expected_rows=expected), call._accumulator, {},
            MatmulOptions(device="vm"), out.copy(),
        )  # fmt: skip
        check(case, a, b, launched.result)
        chosen[expected] = launched.prepared.config
    problem = launched.prepared.original_problem
    rows = 4 if capacity else 16
    assert chosen[None] == gemm.choose(problem, DEFAULT_DEVICE) != chosen[4]
    assert chosen[4] == gemm.choose(problem.with_sizes(rows, 256, 64), DEFAULT_DEVICE)
    for expected in (2**31 - 1, np.int64(7)):  # the product then has as many rows as there can be
        y = tilewright.grouped_matmul(
            a, b, **sizes, expected_rows=expected, out=out.copy(), device="vm"
        )
        check(case, a, b, y)


@pytest.mark.parametrize(("expected", "along"), [(0, "m"), (2.5, "m"), (2**31, "m"), (4, "k")])
def test_expected_rows_that_are_no_rows_of_groups_are_an_error(expected: Any, along: str) -> None:
    a, b, sizes, _ = operands(GroupedCase((3, 0, 9, 1), 64, 64))
    with pytest.raises(ProblemError, match="expected_rows must be from 1"):
        tilewright.grouped_matmul(
            a, b, **sizes, along=along, expected_rows=expected, device="vm"
        )  # fmt: skip
