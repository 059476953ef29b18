"""Kernels that are kept: found again by what decides them, and whole."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tilewright import __version__, cuda, gemm
from tilewright.errors import DeviceError
from tilewright.ptx import parameter_block
from tilewright.run.devices import serialized_kernel
from tilewright.run.devices.serialized_kernel import SerializedKernel
from tilewright.target import DEFAULT_DEVICE

PROBLEM = gemm.Problem(512, 384, 256, "bf16", "bf16", "bf16", "k", "k")
LINES = {"a": gemm.MatrixStrides(256), "b": gemm.MatrixStrides(256), "d": gemm.MatrixStrides(384)}
CONFIGS = "tma:128x128x64:2:4", "tma:64x64x64:1:3*2", "64x64x64:2x2:3"


def steps(problem: gemm.Problem, config: str) -> tuple[gemm.KernelLaunch, ...]:
    return gemm.launches(problem, gemm.parse(config), LINES, DEFAULT_DEVICE)


@pytest.mark.parametrize("config", CONFIGS)
def test_the_parameter_layout_without_tracing(config: str) -> None:
    for step in steps(PROBLEM, config):
        layout = parameter_block.layout(step.kernel.trace().entry)
        assert len(step.arguments.block) == layout.size
        offsets = {p.name: p.offset for p in layout.parameters}
        named = {f"param_{x}" for x in "abcdw"} | {f"param_map_{x}" for x in "abcdw"}
        named |= {"param_edge_a", "param_edge_b", "param_workspace", "param_map_workspace"}
        assert {word * 8 for word, _ in step.arguments.slots} <= {
            offset for name, offset in offsets.items() if name in named
        }


@pytest.mark.parametrize("config", CONFIGS)
def test_the_text_determines_the_kernel(config: str) -> None:
    """The next problem is as much a multiple of the tile."""
    larger = PROBLEM.with_sizes(1024, 768, 1024)
    for one, other in zip(steps(PROBLEM, config), steps(larger, config), strict=True):
        assert str(one.kernel) == str(other.kernel) and one.kernel == other.kernel
        assert gemm_ptx(one, PROBLEM) == gemm_ptx(other, larger)


def gemm_ptx(step: gemm.KernelLaunch, problem: gemm.Problem) -> str:
    """Traced for the problem itself, not for the one that stands for it."""
    return sys.modules[step.kernel.build.__module__]._build(problem, step.kernel.config).ptx


def test_a_kernel_serves_any_batch_count() -> None:
    config = "tma:128x128x64:2:4"
    kernels = [steps(replace(PROBLEM, batch=n), config)[0].kernel for n in (1, 2, 5)]
    assert kernels[1] == kernels[2] != kernels[0]


@pytest.mark.parametrize(
    "other",
    [{"a": "f16", "b": "f16", "d": "f16"}, {"b_major": "n"}, {"align_a": 8}, {"with_c": True}],
)
def test_options_that_change_the_kernel_change_the_text(other: dict[str, object]) -> None:
    config = gemm.Config.parse("64x64x64:2x2:3")
    problem = replace(PROBLEM, **other)  # type: ignore[arg-type]
    like = [gemm.cp_async.cp_async_mainloop.problem_class(p, config) for p in (PROBLEM, problem)]
    one, two = (gemm.GemmKernel(gemm.cp_async.multistage.build, p, config) for p in like)
    assert str(one) != str(two)


def test_a_serialized_kernel_round_trips() -> None:
    serialized_kernel = SerializedKernel(
        "gemm_x", 1 << 16, cuda.Cubin(b"\x7fELF\0\1", "sm_90a", "log ×", "ptxas 13")
    )
    assert SerializedKernel.unpack(serialized_kernel.pack()) == serialized_kernel


def test_a_file_of_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = {
        ("sm_90a", str(step.kernel)): SerializedKernel(
            f"k{i}", i, cuda.Cubin(b"\x7fELF" * i, "sm_90a")
        )
        for i, step in enumerate(steps(PROBLEM, CONFIGS[1]))
    }
    (tmp_path / "k").write_bytes(serialized_kernel.pack(kernels))
    assert serialized_kernel.read(tmp_path / "k") == kernels
    monkeypatch.setattr(serialized_kernel, "_loaded", {})
    wanted = steps(PROBLEM.with_sizes(64, 64, 64), CONFIGS[1])[1].kernel
    assert serialized_kernel.loaded("sm_90a", str(wanted)) is None
    assert serialized_kernel.load(tmp_path / "k") == 2
    found = serialized_kernel.loaded("sm_90a", str(wanted))
    assert (
        found is not None
        and found.entry == "k1"
        and serialized_kernel.loaded("sm_80", str(wanted)) is None
    )


def test_invalid_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "k"
    path.write_bytes(
        serialized_kernel.pack(
            {("sm_90a", "x"): SerializedKernel("k", 1, cuda.Cubin(b"\x7fELF", "sm_90a"))}
        )
    )
    data = path.read_bytes()
    for bad in (b"", b"text", data[:-1], data[:-1] + b"G", data.replace(b"sm_90a", b"sm_90b", 1)):
        path.write_bytes(bad)
        with pytest.raises(DeviceError, match="is not a complete file of kernels"):
            serialized_kernel.load(path)
    path.write_bytes(data)
    monkeypatch.setattr(serialized_kernel, "__version__", "99")
    with pytest.raises(DeviceError, match="must be built by tilewright 99"):
        serialized_kernel.load(path)


def file_bytes(head: Any, rest: bytes = b"") -> bytes:
    """A file whose checksum is right, whatever it says."""
    line = head if isinstance(head, bytes) else json.dumps(head).encode()
    body = line + b"\n" + rest
    return serialized_kernel._MAGIC + hashlib.sha256(body).digest() + body


def header(*entries: Any, version: Any = __version__) -> dict[str, Any]:
    return {"version": version, "kernels": list(entries)}


GOOD = SerializedKernel("k", 0, cuda.Cubin(b"\x7fELF", "sm_90a")).pack()
BAD_HEADS = {
    "no JSON": (b"{", b""),
    "no text": (b"\xff\xfe", b""),
    "a list": ([], b""),
    "a number": (5, b""),
    "nothing in it": ({}, b""),
    "no kernels": ({"version": __version__}, b""),
    "kernels that are none": ({"version": __version__, "kernels": 3}, b""),
    "a version that is none": (header(version=[1]), b""),
    "an entry of two": (header(["sm_90a", "k"]), GOOD),
    "an entry that is a number": (header(5), GOOD),
    "a name that is a list": (header(["sm_90a", [1], len(GOOD)]), GOOD),
    "a negative size": (header(["sm_90a", "k", -1]), GOOD),
    "a size that is true": (header(["sm_90a", "k", True]), GOOD),
    "a size beyond the end": (header(["sm_90a", "k", len(GOOD) + 1]), GOOD),
    "bytes of no entry": (header(), GOOD),
    "a kernel that is cut": (header(["sm_90a", "k", 3]), GOOD[:3]),
    "a kernel without a name": (header(["a", "k", 8]), b"\x02\0\0\0[]\0\0"),
    "a kernel with another": (header(["a", "k", 9]), b"\x05\0\0\0[1,2]"),
    "nested without end": (b"[" * 100_000, b""),
}


@pytest.mark.parametrize(("head", "rest"), BAD_HEADS.values(), ids=BAD_HEADS)
def test_an_invalid_header_with_a_valid_checksum(head: Any, rest: bytes, tmp_path: Path) -> None:
    file = tmp_path / "kernels"
    file.write_bytes(file_bytes(head, rest))
    with pytest.raises(DeviceError, match="has an invalid header"):
        serialized_kernel.load(file)
    assert not serialized_kernel._loaded
    file.write_bytes(file_bytes(header(["sm_90a", "k", len(GOOD)]), GOOD))
    assert serialized_kernel.read(file)["sm_90a", "k"].pack() == GOOD


@pytest.mark.parametrize("path", ["nowhere/kernels", ".", "a\0b", None, 5, b"kernels"])
def test_a_file_that_cannot_be_read(path: Any) -> None:
    with pytest.raises(DeviceError, match=r"can't be read|must be a path, got"):
        serialized_kernel.load(path)
