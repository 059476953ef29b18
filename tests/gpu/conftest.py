"""The GPU under test. ``@pytest.mark.sm("sm_90a")`` asks for one of that architecture."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tilewright import cuda


@pytest.fixture(autouse=True)
def _right_architecture(request: pytest.FixtureRequest) -> None:
    marker = request.node.get_closest_marker("sm")
    if marker and cuda.gpu().arch not in marker.args:
        pytest.skip(f"needs {' or '.join(marker.args)}, not {cuda.gpu().arch}")


@pytest.fixture
def gpu() -> cuda.Gpu:
    return cuda.gpu()


@pytest.fixture
def memory(gpu: cuda.Gpu) -> Iterator[int]:
    """64 KiB of zeros."""
    address = gpu.alloc(1 << 16)
    gpu.memset(address, 0, 1 << 16)
    yield address
    gpu.free(address)
