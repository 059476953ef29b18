"""What nobody listed: wrong inputs of the public entry points, each a typed error.

Rows are checked in loops that collect what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import bit_packing, dtypes, gemm, layout, number_conversion, ptx, run, target, view
from tilewright.errors import DtypeError, TilewrightError
from tilewright.vm import Machine

pytestmark = pytest.mark.vm

A = np.ones((16, 16), np.float16)
HOW: dict[str, Any] = {"config": "32x32x32:1x1:2", "device": "vm"}
JUNK = [5, -1, 1.5, "x", [], {}, object(), (1, 2), 10**400, np.zeros(3), int, b"ab"]
L = tilewright.Layout((4, 4))
PROBLEM = gemm.Problem(64, 64, 64)

CALLS: dict[str, Callable[[Any], Any]] = {
    "matmul a": lambda x: tilewright.matmul(x, A, **HOW),
    "matmul b": lambda x: tilewright.matmul(A, x, **HOW),
    "matmul out": lambda x: tilewright.matmul(A, A, out=x, **HOW),
    "matmul out_dtype": lambda x: tilewright.matmul(A, A, out_dtype=x, **HOW),
    "matmul precision": lambda x: tilewright.matmul(A, A, precision=x, **HOW),
    "matmul device": lambda x: tilewright.matmul(A, A, device=x),
    "matmul config": lambda x: tilewright.matmul(A, A, device="vm", config=x),
    "plan layout": lambda x: tilewright.plan(64, 64, 64, layout=x, device="vm"),
    "plan dtype": lambda x: tilewright.plan(64, 64, 64, dtype=x, device="vm"),
    "plan c": lambda x: tilewright.plan(64, 64, 64, c=x, device="vm"),
    "tensor_map": lambda x: tilewright.tensor_map(x, (8, 8)),
    "tensor_map box": lambda x: tilewright.tensor_map(A, x),
    "Problem a": lambda x: gemm.Problem(64, 64, 64, x),
    "Problem a_major": lambda x: gemm.Problem(64, 64, 64, a_major=x),
    "Problem with_c": lambda x: gemm.Problem(64, 64, 64, with_c=x),
    "Problem align_a": lambda x: gemm.Problem(64, 64, 64, align_a=x),
    "Config.parse": lambda x: tilewright.Config.parse(x),
    "gemm.parse": gemm.parse,
    "gemm.choose": lambda x: gemm.choose(x, target.DEFAULT_DEVICE),
    "gemm.choose for": lambda x: gemm.choose(PROBLEM, x),
    "gemm.ranked": lambda x: gemm.ranked(x, target.DEFAULT_DEVICE),
    "gemm.check": lambda x: gemm.check(PROBLEM, x, target.DEFAULT_DEVICE),
    "gemm.build": lambda x: gemm.build(x, gemm.parse("32x32x32:1x1:2"), target.DEFAULT_DEVICE),
    "gemm.build of": lambda x: gemm.build(PROBLEM, x, target.DEFAULT_DEVICE),
    "gemm.roofline": lambda x: gemm.roofline(x, target.DEFAULT_DEVICE),
    "gemm.workspace_bytes": lambda x: gemm.workspace_bytes(x, gemm.parse("32x32x32:1x1:2")),
    "dtype": dtypes.dtype,
    "target.device_spec": target.device_spec,
    "targets_of": lambda x: target.targets_of(None if isinstance(x, tuple) else x),
    "run.device": run.device,
    "VmDevice": run.VmDevice,
    "launch": lambda x: run.launch(x, (1, 1, 1), (1, 1, 1), ()),
    "ptx.link": ptx.link,
    "ptx.check": ptx.check,
    "load": tilewright.load,
    "Machine memory": lambda x: Machine(memory=x),
    "Machine features": lambda x: Machine(features=5 if isinstance(x, str) else x),
    "Machine store": lambda x: Machine(store=5 if isinstance(x, dict) else x),
    "unflatten": lambda x: layout.unflatten(5, x),
    "elem_less": lambda x: layout.elem_less(None, x),
    "shape_div": lambda x: layout.shape_div(None, x),
    "upcast": lambda x: layout.upcast(x, 2),
    "slice_and_offset": lambda x: layout.slice_and_offset(None, x),
    "ScaledBasis": lambda x: layout.ScaledBasis(1, None if isinstance(x, tuple) else x),
    "tv_text": lambda x: view.tv_text(L, [x]),
    "arithmetic_words": view.arithmetic_words,
}


@pytest.mark.filterwarnings("ignore")
def test_nonsense_is_a_typed_error() -> None:
    wrong = []
    for name, call in CALLS.items():
        for junk in JUNK:
            try:
                made = call(junk)
            except TilewrightError:
                continue
            except Exception as error:
                wrong.append(f"{name}({junk!r:.40}): {error!r:.100}")
            else:
                wrong.append(f"{name}({junk!r:.40}) is {made!r:.60}")
    assert not wrong


NUMBERS: dict[str, Callable[[], Any]] = {
    "a fraction for bits": lambda: number_conversion.decode("f16", 1.5),
    "None for bits": lambda: number_conversion.is_nan("f16", None),
    "text for bits": lambda: number_conversion.decode("f16", "x"),
    "a long integer for bits": lambda: number_conversion.decode("f16", 10**400),
    "None for a number": lambda: number_conversion.encode("f16", None),
    "text for a number": lambda: number_conversion.encode("f16", "x"),
    "a complex number": lambda: number_conversion.encode("f32", 1j),
    "a number beyond all": lambda: number_conversion.encode("f64", 10**400),
    "a list for the rounding": lambda: number_conversion.encode("f16", 1.0, []),
    "a number that is packed": lambda: bit_packing.pack("s4", 5),
    "fractions that are packed": lambda: bit_packing.pack("s4", [1.5] * 8),
    "objects that are unpacked": lambda: bit_packing.unpack("s4", [None]),
    "words of no type": lambda: bit_packing.pack("s4", [1] * 8, "nothing"),
    "a type of None": lambda: dtypes.from_numpy(None),
    "a type of 5": lambda: dtypes.from_numpy(5),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_and_bits_that_are_none(name: str) -> None:
    says = r"must be|beyond the range|unknown rounding|takes an array|no number format|expected a"
    with pytest.raises(DtypeError, match=says):
        NUMBERS[name]()


def test_numbers_and_bits_stay_what_they_were() -> None:
    assert (
        number_conversion.decode("f16", []).size == 0
        and number_conversion.encode("f16", []).size == 0
    )
    assert number_conversion.decode("f16", -1) != number_conversion.decode(
        "f16", -1
    )  # all ones: a NaN
    assert number_conversion.decode("f16", True) == 2.0**-24
    assert number_conversion.encode("f64", 2**70) == number_conversion.encode("f64", 2.0**70)
    assert dtypes.from_numpy(bool).name == "pred"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda m: m.write({}, 0), r"an address must be an int, got \{\}"),
        (lambda m: m.write(m.alloc(8), {}), "got dict of dtype object"),
        (lambda m: m.upload([[1], [2, 3]]), "expected an array of numbers, got list"),
        (lambda m: m.upload("text"), "got str of dtype <U4"),
        (lambda m: m.upload(np.ma.zeros(3)), "a masked array is not supported"),
        (lambda m: m.upload(np.zeros(3, ">f4")), "byte order must be native"),
        (lambda m: m.download(np.zeros(2), m.alloc(16)), "like must be a NumPy array, got int"),
        (lambda m: m.download("x", np.zeros(2)), "an address must be an int, got 'x'"),
        (lambda m: m.launch("k", b"12", 1), "must be one to three integers"),
        (lambda m: m.launch("k", 1, 1, on_step=5), "on_step must be a function, got 5"),
        (lambda m: m.launch("k", 1, 1, watch="x"), "watch must be a function, got 'x'"),
        (lambda m: Machine(memory=1), "memory must be a machine's memory, got 1"),
        (lambda m: Machine(memory=0), "memory must be a machine's memory, got 0"),
    ],
)  # fmt: skip
def test_a_machine_says_what_it_wants(given: Callable[[Machine], Any], words: str) -> None:
    machine = Machine()
    machine.load(".version 8.0\n.target sm_90\n.address_size 64\n.entry k() { ret; }")
    with pytest.raises(TilewrightError, match=words):
        given(machine)
