"""The corpus on the GPU that is here: ``outcome`` of a case there, and on the virtual machine."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from corpus_cases.table import CASES, Case, run, text
from tilewright import cuda
from tilewright.ptx import parameter_block
from tilewright.ptx.syntax.printer import print_module
from tilewright.vm import Machine

for family in sorted(Path(__file__).parent.glob("*.py")):
    if family.stem not in ("table", "triton_table", "on_gpu"):
        import_module(f"corpus_cases.{family.stem}")


def skip_reason(case: Case) -> str:
    """Why a case can't run on a GPU as it runs on the virtual machine; or nothing."""
    if case.linked:
        return "it is linked from several files"
    if case.fails:
        return "it ends with an error"
    if case.kernel == "clocks":
        return "it measures time"
    if "%envreg" in text(case.file) and "grid" in case.kernel:
        return "its launch is cooperative"
    return ""


class _DownloadRecorder(Machine):
    """The virtual machine; it keeps what is downloaded."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[np.ndarray] = []

    def download(self, address: int, like: Any) -> np.ndarray:
        self.kept.append(super().download(address, like))
        return self.kept[-1]


def assemblable(module: Any) -> str:
    """The text for CUDA 13.0's assemblers: Triton names a later version than it needs, and labels
    of a debug section that it leaves out.
    """
    text = re.sub(r"\.version 9\.[1-9]", ".version 9.0", print_module(module))
    return re.sub(r"(?m)^(\s*\.loc[^,\n]*),.*$", r"\1", text)


class _OnGpu:
    """What the corpus takes of a ``Machine``, on a GPU, with contraction off; ``change`` edits the
    cubin that is loaded.
    """

    def __init__(self, change: Callable[[bytes], bytes] | None = None) -> None:
        self.gpu, self.kept, self.change = cuda.gpu(), [], change

    def load(self, module: Any) -> None:
        self.module = module
        self.image = _compiled(assemblable(module), self.gpu.arch)
        if self.change is not None:
            self.image = replace(self.image, code=self.change(self.image.code))

    def upload(self, array: np.ndarray) -> int:
        address = self.gpu.alloc(max(array.nbytes, 1))
        self.gpu.upload(address, np.ascontiguousarray(array))
        return address

    def download(self, address: int, like: np.ndarray) -> np.ndarray:
        made = np.empty_like(like)
        self.gpu.download(made, address)
        self.kept.append(made)
        return made

    def launch(self, entry: str, grid, block, args, *, shared=0, cluster=None) -> None:
        (function,) = (f for f in self.module.entries if f.name == entry)
        kernel = self.gpu.load(self.image)[entry]
        packed = parameter_block.layout(function).at(kernel.param_offsets).pack(args)
        self.gpu.launch(kernel, grid, block, packed, shared=shared, cluster=cluster)
        self.gpu.wait()


@cache
def _compiled(text: str, arch: str) -> cuda.Cubin:
    return cuda.compile(text, arch, contract=False)


def on_vm(number: int) -> list[np.ndarray]:
    machine = _DownloadRecorder()
    run(CASES[number], machine)
    return machine.kept


def on_gpu(number: int, change: Callable[[bytes], bytes] | None = None) -> list[np.ndarray]:
    """The arrays that the case's kernel wrote; AssertionError where they are not as it says."""
    machine = _OnGpu(change)
    run(CASES[number], machine)  # type: ignore[arg-type]
    return machine.kept
