"""What an H200's reductions leave, and which there are: the file and how it is made.

A case combines 16 numbers of a type with each other, NaNs, subnormals and both zeros among them: in
a tensor by each operation and type of map (most are no instruction of the hardware), in a row of
global memory, and by ``red`` in global and shared memory. ``benchmarks/reductions_probe.py
--golden`` writes the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ptx_kernels import simt
from ptx_kernels.bulk_kernels import (
    BYTES,
    FLOATS,
    PAIRS,
    difference,
    every_pair,
    to_global,
    to_tensor,
)
from tilewright.errors import CudaError, VmFault
from tilewright.mma import TensorMap
from tilewright.mma.tensor_maps.tensor_map_parameters import TYPES
from tilewright.vm.engine.async_reductions import OPERATIONS

FILE = Path(__file__).parents[2] / "data" / "reductions_sm_90a.npz"
NO_INSTRUCTION = "CUDA_ERROR_ILLEGAL_INSTRUCTION"


class Case(NamedTuple):
    """``way``: tensor, bulk, global or shared."""

    way: str
    op: str
    type: str

    def __str__(self) -> str:
        return " ".join(self)

    @property
    def given(self) -> tuple[np.ndarray, np.ndarray]:
        """256 numbers in memory, and 256 that are combined with them."""
        name = self.type.partition(".")[0].replace("tf32", "f32")
        return every_pair(name)


CASES = [
    *(Case("tensor", op, type_) for op in OPERATIONS for type_ in TYPES),
    *(Case("bulk", op, type_) for op, type_ in PAIRS),
    *(Case(space, "add", type_) for space in ("global", "shared") for type_ in FLOATS),
]


def left(case: Case, launch) -> np.ndarray | None:
    """The 256 numbers in memory after it; None if there is no such instruction."""
    there, comes = case.given
    if case.way == "bulk":
        return launch(to_global(case.op, case.type, there.nbytes), [there, comes])[0]
    if case.way != "tensor":
        return launch(_red(case), [there, comes], block=256)[0]
    m = TensorMap.tiled(0, case.type, (256,), (), (256,))
    whole = np.resize(comes, BYTES // comes.itemsize)
    text = to_tensor(case.op, m, [0])
    try:
        return launch(text, [there, whole, np.frombuffer(m.encode(), np.uint8)])[0]
    except CudaError as error:
        if error.name != NO_INSTRUCTION:
            raise
    except VmFault as error:
        if "no such reduction" not in str(error):
            raise
    return None


def _red(case: Case) -> str:
    """Each of 256 threads adds its number of %a1 to that of %a0, in global or shared memory."""
    form = f"red.{case.way}.add.{'noftz.' * case.type.endswith('16')}{case.type}"
    size = 2 if case.type.endswith("16") else int(case.type[1:]) // 8
    x, y = {2: ("%h0", "%h1"), 4: ("%r2", "%r3"), 8: ("%rd2", "%rd3")}[size]
    bits, at = f"b{8 * size}", ("%rd0" if case.way == "global" else "%r4")
    held, value = (f"mad.wide.u32 %rd{i}, %t, {size}, %a{i};" for i in (0, 1))
    body = f"{held} {value} ld.global.{bits} {y}, [%rd1];"
    if case.way == "shared":
        body += f"""mov.u32 %r4, buf; mad.lo.u32 %r4, %t, {size}, %r4;
        ld.global.{bits} {x}, [%rd0]; st.shared.{bits} [{at}], {x};"""
    body += f"{form} [{at}], {y};"
    if case.way == "shared":
        body += f"ld.shared.{bits} {x}, [{at}]; st.global.{bits} [%rd0], {x};"
    return simt.kernel(body, ".shared .align 8 .b8 buf[2048];")


def mismatch(
    case: Case, made: np.ndarray | None, expected: np.ndarray | None, most: int = 20
) -> str:
    """How two results of a case differ; empty if they don't."""
    if made is None or expected is None:
        says = {True: "no such instruction", False: "there is one"}
        same = (made is None) == (expected is None)
        return "" if same else f"{says[made is None]}, not: {says[expected is None]}"
    return difference(made, expected, *case.given, most=most)


def write(path: Path, found: Mapping[Case, np.ndarray | None]) -> None:
    """Write the results; an unsupported case has none."""
    kept = [b"" if x is None else x.tobytes() for x in found.values()]
    np.savez_compressed(
        path,
        names=np.frombuffer("\n".join(map(str, found)).encode(), np.uint8),
        sizes=np.array([len(x) for x in kept], np.uint16),
        left=np.frombuffer(b"".join(kept), np.uint8),
    )


def read(path: Path = FILE) -> dict[Case, np.ndarray | None]:
    """Case → what was left."""
    data = np.load(path)
    ends = np.cumsum(data["sizes"].astype(int))
    made = {}
    for name, part in zip(
        data["names"].tobytes().decode().split("\n"),
        np.split(data["left"], ends[:-1]),
        strict=True,
    ):
        case = Case(*name.split(" "))
        made[case] = part.view(case.given[0].dtype) if part.size else None
    return made
