"""Unsupported instructions are refused before launch; hints and fences change no value."""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import CodeType, FunctionType

import numpy as np
import pytest

from ptx_kernels.simt import both, kernel, launch, store, zeros
from tilewright.errors import PtxCheckError
from tilewright.ptx.isa import ROWS
from tilewright.ptx.isa.primitives import Primitives
from tilewright.vm import Machine
from tilewright.vm.codegen.region import Region
from tilewright.vm.program.unsupported_features import UNSUPPORTED_FEATURES
from tilewright.vm.step.stepper import SteppingEvaluator

pytestmark = pytest.mark.vm

REFUSED = [
    "multimem.ld_reduce.global.add.f32 %f1, [%a0]",
    "multimem.st.global.f32 [%a0], %f1",
    "multimem.red.global.add.f32 [%a0], %f1",
]


#: The primitives that only instructions with a feature use.
FEATURES = {
    "bulk_copy": {
        "bulk_copy", "bulk_reduce", "bulk_commit", "bulk_wait", "tensor_load", "tensor_store",
        "tensor_reduce", "tensor_load_sm100", "tensor_scatter", "store_async", "cancel_cluster",
    },
    "tensor_copy_sm100": {"tensor_load_sm100", "tensor_scatter"},
    "multimem": {"multimem_load", "multimem_reduce", "multimem_store"},
}  # fmt: skip
#: Instructions that name a unit and have no effect on values.
HINTS = "cp.async.bulk.prefetch"


def primitives() -> set[str]:
    return {name for name in vars(Primitives) if not name.startswith("_")}


def used(meaning) -> set[str]:
    """The primitives that a meaning uses, itself or in functions of its module."""
    attributes, functions = set(), [meaning]
    seen = {meaning}
    while functions:
        function = functions.pop()
        steps = list(instructions(function.__code__))
        attributes |= {i.argval for i in steps if i.opname in ("LOAD_ATTR", "LOAD_METHOD")}
        named = (function.__globals__.get(i.argval) for i in steps if i.opname == "LOAD_GLOBAL")
        called = {f for f in named if isinstance(f, FunctionType)} - seen
        functions += called
        seen |= called
    return attributes & primitives()


def instructions(code: CodeType) -> Iterator[dis.Instruction]:
    """The byte code of a function and of the functions inside it."""
    yield from dis.get_instructions(code)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from instructions(constant)


@pytest.mark.parametrize("feature", FEATURES)
def test_rows_declare_the_features_whose_primitives_they_use(feature):
    rows = [r for rows in ROWS.values() for r in rows if not r.syntax.startswith(HINTS)]
    declaring = {r.syntax for r in rows if feature in r.features}
    assert declaring == {r.syntax for r in rows if used(r.meaning) & FEATURES[feature]} != set()


def test_no_row_declares_another_feature():
    assert {f for rows in ROWS.values() for r in rows for f in r.features} == set(FEATURES)


def test_unsupported_features_are_those_whose_primitives_an_evaluator_lacks():
    lacking = {
        n for n in primitives() if not (hasattr(Region, n) and hasattr(SteppingEvaluator, n))
    }
    assert lacking == set().union(*(FEATURES[feature] for feature in UNSUPPORTED_FEATURES))


@pytest.mark.parametrize("line", REFUSED)
@pytest.mark.parametrize("on_step", [None, lambda step: None])
def test_unsupported_instruction_is_refused_with_its_location(line, on_step):
    text = kernel(f"{store('%t')}\n{line};").replace(".version 8.6", ".version 8.8")
    with pytest.raises(PtxCheckError) as caught:
        launch(Machine(), text, [zeros()], on_step=on_step)
    assert f"does not support {line.split()[0]}" in caught.value.message
    assert caught.value.location.text == f"{line};"


QUIET = """
setmaxnreg.dec.sync.aligned.u32 40; setmaxnreg.inc.sync.aligned.u32 232;
griddepcontrol.wait; griddepcontrol.launch_dependents; nanosleep.u32 20;
fence.sc.cta; fence.acq_rel.cluster; fence.acquire.sync_restrict::shared::cluster.cluster;
fence.mbarrier_init.release.cluster; fence.proxy.alias; fence.proxy.async;
fence.proxy.async.shared::cluster;
fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster;
fence.proxy.tensormap::generic.release.gpu; fence.proxy.tensormap::generic.acquire.gpu [%a0], 128;
membar.gl; membar.proxy.alias;
prefetch.global.L2 [%a0]; prefetch.tensormap [%a0]; prefetchu.L1 [%a0]; discard.L2 [%a0], 128;
prefetch.L2::evict_last [%a0]; applypriority.global.L2::evict_normal [%a0], 128;
cp.async.bulk.prefetch.L2.global [%a0], 128;
cp.async.bulk.prefetch.tensor.3d.L2.global.im2col [%a0, {%t, %t, 3}], {4};
createpolicy.fractional.L2::evict_last.b64 %rd1, 0.5;
createpolicy.range.L2::evict_first.b64 %rd2, [%a0], 64, 128; createpolicy.cvt.L2.b64 %rd3, %rd2;
"""


def test_hints_and_fences_have_no_effect():
    out, before = both(kernel(QUIET + store("%t")), [zeros(), np.arange(32)])
    assert out.tolist() == before.tolist() == list(range(32))


def test_cta_accesses_its_own_memory_as_cluster_memory():
    """Loads, stores and atomics of shared::cluster; both windows hold the address."""
    text = kernel(f"""
      .shared .align 16 .b32 sm[32]; mov.u32 %r2, sm; mad.lo.u32 %r2, %t, 4, %r2;
      st.shared::cluster.u32 [%r2], %t; red.relaxed.cluster.shared::cluster.add.u32 [%r2], 5;
      atom.shared::cluster.inc.u32 %r3, [%r2], 100;
      ld.acquire.cluster.shared::cluster.u32 %r4, [%r2];
      cvt.u64.u32 %rd0, %r2; cvta.shared::cluster.u64 %rd1, %rd0;
      isspacep.shared::cluster %p0, %rd1; isspacep.shared::cta %p1, %rd1;
      isspacep.shared::cluster %p2, %a0; and.pred %p0, %p0, %p1; @%p2 mov.u32 %r4, 0;
      mov.pred %p3, %is_explicit_cluster; mov.u32 %r5, %cluster_nctarank;
      @%p3 mov.u32 %r4, 1; mul.lo.u32 %r4, %r4, %r5; cvta.to.shared::cluster.u64 %rd2, %rd1;
      setp.ne.u64 %p2, %rd2, %rd0; @%p2 mov.u32 %r4, 2; @!%p0 mov.u32 %r4, 3; {store("%r4")}""")
    (out,) = both(text, [zeros()])
    assert out.tolist() == [t + 6 for t in range(32)]


def test_a_tensor_map_is_copied_behind_its_fence():
    name = "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned"
    text = kernel(f"""
      .shared .align 128 .b32 map[32]; mov.u32 %r2, map; mad.lo.u32 %r3, %t, 4, %r2;
      mul.lo.u32 %r4, %t, 0x01010101; st.shared.u32 [%r3], %r4; bar.warp.sync -1;
      {name} [%a0], [%r2], 128;""")
    (out,) = both(text, [zeros()])
    assert out.tolist() == [t * 0x01010101 for t in range(32)]
