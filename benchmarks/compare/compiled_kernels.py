"""Kernels that processes compile for an H200, while others are measured."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TypeVar

import tilewright
from tilewright import gemm
from tilewright.run.devices import serialized_kernel
from tilewright.run.devices.serialized_kernel import Kernels, SerializedKernel

ARCHITECTURE = "sm_90a"
K = TypeVar("K", bound=Hashable)
Build = Callable[[gemm.GemmKernel, str], SerializedKernel]


def compiled(
    wanted: Iterable[tuple[K, Iterable[gemm.GemmKernel]]], build: Build = serialized_kernel.build
) -> Iterator[tuple[K, Kernels]]:
    """Each case with its kernels, in this order, when they are compiled. One that is loaded is not
    compiled again; one that can't be compiled is left out and printed: its call will tell.
    """
    loaded = serialized_kernel.loaded
    futures: dict[str, Future[SerializedKernel]] = {}
    cases: list[tuple[K, list[str]]] = []
    with ProcessPoolExecutor(processes(), get_context("spawn")) as pool:
        for case, kernels in wanted:
            names = []
            for kernel in kernels:
                names.append(name := str(kernel))
                if name not in futures and not loaded(ARCHITECTURE, name):
                    futures[name] = pool.submit(build, kernel, ARCHITECTURE)
            cases.append((case, names))
        print(f"{len(futures)} kernels to compile", flush=True)
        try:
            for case, names in cases:
                here = {(ARCHITECTURE, x): _finished(x, futures) for x in names if x in futures}
                known = {(ARCHITECTURE, x): loaded(ARCHITECTURE, x) for x in names}
                yield case, {x: there for x, there in (known | here).items() if there}
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _finished(name: str, futures: dict[str, Future[SerializedKernel]]) -> SerializedKernel | None:
    try:
        return futures[name].result()
    except (tilewright.TilewrightError, OSError) as error:
        print(f"FAILED: {name}: {error}"[:300], flush=True)
        return None


def load(kernels: Kernels) -> None:
    """Let calls use these kernels."""
    with NamedTemporaryFile() as file:
        Path(file.name).write_bytes(serialized_kernel.pack(kernels))
        tilewright.load(file.name)


def processes() -> int:
    """Processes that compile: all cores but one."""
    return max(1, len(os.sched_getaffinity(0)) - 1)
