"""Kernel multistage as text: it parses back, passes the checker, runs on sm_80, is shared."""

from __future__ import annotations

import pytest

from gemm_cases.kernels import BEST, MAJORS, MIDDLE, ODD, OTHER, WHOLE, make_problem
from rows import slow_but
from tilewright import ptx
from tilewright.builder import Traced
from tilewright.gemm import TABLE, Config, Problem, build
from tilewright.gemm.cp_async.cp_async_parameters import CpAsyncParameters
from tilewright.target import DEFAULT_DEVICE

CASES = {**{name: case for name, case in BEST.items() if "bf16" not in name}, **OTHER}


@pytest.mark.parametrize("name", slow_but([*CASES][::2], CASES))
def test_it_reads_back_and_keeps_the_rules(name: str) -> None:
    traced = build(*CASES[name], DEFAULT_DEVICE)
    module = ptx.parse(traced.ptx)
    assert module == traced.module
    ptx.check(module)


@pytest.mark.parametrize("type_", ["f16", "bf16"])
@pytest.mark.parametrize("case", OTHER.values(), ids=OTHER)
def test_it_asks_for_no_more_than_it_needs(case: tuple[Problem, Config], type_: str) -> None:
    problem, config = case
    d = type_ if problem.d == problem.a else problem.d
    module = build(
        make_problem(ODD, problem.layout, type_, d=d, with_c=True), config, DEFAULT_DEVICE
    ).module
    assert (module.version, *module.target) == ptx.needs(module)
    assert module.target == ("sm_80",) and module.version <= (7, 1)


@pytest.mark.parametrize(("shape", "target"), [("m8n8k4", "sm_80"), ("m16n8k8", "sm_90")])
def test_f64_needs_what_its_instruction_needs(shape: str, target: str) -> None:
    config = Config.parse(f"32x32x16:2x2:3:{shape}")
    traced = build(make_problem(ODD, "tt", "f64", with_c=True), config, DEFAULT_DEVICE)
    assert traced.module.target == (target,)
    assert traced.dynamic_shared == 3 * 64 * 16 * 8
    types = {p.name: p.dtype.name for p in traced.params}
    assert types == CpAsyncParameters.types("f64")


@pytest.mark.parametrize("config", TABLE, ids=str)
def test_what_a_launch_must_know(config: Config) -> None:
    traced = build(make_problem(WHOLE), config, DEFAULT_DEVICE)
    assert [p.name for p in traced.params] == list(CpAsyncParameters.types())
    assert traced.block == (config.threads, 1, 1)
    assert traced.dynamic_shared == config.shared_bytes(16)
    assert {d.name: d.arguments for d in traced.entry.directives} == {
        "maxntid": (str(config.threads), "1", "1"),
        "minnctapersm": (str(config.ctas),),
    }


def test_problems_of_one_class_share_a_kernel() -> None:
    def kernel(*sizes: int) -> Traced:
        return build(make_problem(sizes), MIDDLE, DEFAULT_DEVICE)

    whole = kernel(64, 128, 192)
    assert whole is kernel(6400, 64, 64)
    assert kernel(65, 64, 64) is kernel(7, 640, 128)
    for sizes in ((65, 64, 64), (64, 65, 64), (64, 64, 65)):
        assert kernel(*sizes) is not whole


@pytest.mark.parametrize("layout", MAJORS)
def test_whole_tiles_are_copied_without_tests(layout: str) -> None:
    """No copy of fewer bytes than its size, 16 bytes each."""
    text = build(make_problem(WHOLE, layout), MIDDLE, DEFAULT_DEVICE).ptx
    copies = [line for line in text.splitlines() if "cp.async.cg" in line]
    assert copies and all(line.endswith("], 16;") for line in copies)
