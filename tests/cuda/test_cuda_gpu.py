"""Compile, load, launch and time on a real GPU: what ``tilewright.cuda`` promises."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright import cuda
from tilewright.cuda import assembler
from tilewright.cuda.driver import call
from tilewright.errors import CudaError, DeviceError, LaunchError

pytestmark = pytest.mark.gpu

HEAD = """.version 8.0
.target sm_80
.address_size 64
"""

# out[global thread] += step; the block's last thread also proves its dynamic shared memory
ADD = (
    HEAD
    + """.extern .shared .align 16 .b8 smem[];
.visible .entry add(.param .u64 out, .param .u32 step)
{
    .reg .pred %p;
    .reg .b32 %r<10>;
    .reg .b64 %a<5>;
    ld.param.u64 %a1, [out];
    ld.param.u32 %r1, [step];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    cvta.to.global.u64 %a2, %a1;
    mul.wide.s32 %a3, %r5, 4;
    add.s64 %a4, %a2, %a3;
    mov.u32 %r8, %dynamic_smem_size;
    setp.lt.u32 %p, %r8, 16;
    @%p bra ADD;
    mov.u32 %r9, smem;
    add.u32 %r9, %r9, %r8;
    st.shared.u32 [%r9+-4], %r1;
    ld.shared.u32 %r1, [%r9+-4];
ADD:
    ld.global.u32 %r6, [%a4];
    add.s32 %r7, %r6, %r1;
    st.global.u32 [%a4], %r7;
    ret;
}
"""
)

# out[CTA] = number of CTAs in its cluster
CLUSTER = """.version 8.0
.target sm_90
.address_size 64
.visible .entry cluster(.param .u64 out)
{
    .reg .b32 %r<3>;
    .reg .b64 %a<4>;
    ld.param.u64 %a1, [out];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %cluster_nctarank;
    mul.wide.s32 %a2, %r1, 4;
    add.s64 %a3, %a1, %a2;
    st.global.u32 [%a3], %r2;
    ret;
}
"""

BAD = ADD.replace("add.s32 %r7, %r6, %r1;", "add.s32 %r7, %a1, %r1;")


@pytest.fixture(scope="module")
def add() -> cuda.CudaFunction:
    gpu = cuda.gpu()
    return gpu.load(cuda.compile(ADD, gpu.arch))["add"]


def packed(out: int, step: int) -> bytes:
    return struct.pack("<QI", out, step)


def read(gpu: cuda.Gpu, address: int, count: int, stream: object = None) -> list[int]:
    out = np.empty(count, np.int32)
    gpu.download(out, address, stream)
    return out.tolist()


def test_devices() -> None:
    assert cuda.available()
    assert cuda.why_not() == ""
    first = cuda.devices()[0]
    assert first.sms > 0
    assert first.shared_optin >= 64 * 1024
    assert first.arch.startswith(f"sm_{first.cc[0]}")
    assert cuda.gpu() is cuda.gpu(0)
    with pytest.raises(DeviceError, match=r"GPU's number must be from 0 to \d+, got 99"):
        cuda.Gpu(99)


# --- memory ---


def test_upload_download_and_memset(gpu: cuda.Gpu, memory: int) -> None:
    data = np.random.default_rng(0).integers(0, 256, 5000, dtype=np.uint8)
    gpu.upload(memory, data)
    back = np.zeros_like(data)
    gpu.download(back, memory)
    assert np.array_equal(back, data)
    gpu.upload(memory + 3, b"abc")
    gpu.memset(memory, 7, 3)
    gpu.download(back, memory)
    assert bytes(back[:8]) == b"\7\7\7abc" + bytes(data[6:8])
    assert cuda.ordinal_of(memory) == 0


def test_host_arrays_must_be_contiguous_and_writable(gpu: cuda.Gpu, memory: int) -> None:
    with pytest.raises(LaunchError, match="must be contiguous"):
        gpu.upload(memory, np.zeros((4, 4))[:, ::2])
    with pytest.raises(LaunchError, match="must be writable, got a read-only array"):
        gpu.download(np.frombuffer(b"abcd", np.uint8), memory)


def test_out_of_memory(gpu: cuda.Gpu) -> None:
    with pytest.raises(CudaError, match="out of memory") as caught:
        gpu.alloc(1 << 50)
    assert caught.value.name == "CUDA_ERROR_OUT_OF_MEMORY"
    assert caught.value.hint


def test_ordinal_of_an_invalid_address() -> None:
    with pytest.raises(CudaError, match="looking up the GPU of address 0x1234"):
        cuda.ordinal_of(0x1234)


# --- compile ---


@pytest.mark.parametrize("name", ["with_nvjitlink", "with_driver"])
def test_both_assemblers(gpu: cuda.Gpu, memory: int, name: str) -> None:
    options = assembler.AssemblerOptions(True, False, None, "my.ptx")
    assemble = getattr(assembler, name)
    cubin = assemble(ADD, gpu.arch, options)
    assert cubin.code[:4] == b"\x7fELF"
    assert cubin.registers > 0, cubin.log
    assert cubin.spills == 0
    with gpu.load(cubin) as loaded:
        gpu.launch(loaded["add"], 2, 4, packed(memory, 5))
        assert read(gpu, memory, 9) == [5] * 8 + [0]
    with pytest.raises(CudaError, match="Arguments mismatch") as caught:
        assemble(BAD, gpu.arch, options)
    location = caught.value.location
    assert location and location.file == "my.ptx"
    assert BAD.splitlines()[location.line - 1].strip() == "add.s32 %r7, %a1, %r1;"


def test_loading_an_invalid_cubin(gpu: cuda.Gpu) -> None:
    with pytest.raises(CudaError, match="loading a module into"):
        gpu.load(b"\x7fELF and nothing more" + bytes(100))


def test_a_missing_kernel_and_a_closed_module(gpu: cuda.Gpu) -> None:
    loaded = gpu.load(cuda.compile(ADD, gpu.arch))
    with pytest.raises(CudaError, match="'nope'"):
        loaded["nope"]
    loaded.close()
    loaded.close()
    with pytest.raises(DeviceError, match="its module is closed"):
        loaded["add"]


# --- launch ---


def test_params_in_place_and_as_bytes(gpu: cuda.Gpu, memory: int, add: cuda.CudaFunction) -> None:
    launch = gpu.prepare(add, (2, 1, 1), (4, 1, 1))
    params = cuda.ParamBlock(12)
    for step in (1, 10):
        struct.pack_into("<QI", params.view, 0, memory, step)
        launch(params)
    launch(packed(memory, 100))
    assert read(gpu, memory, 9) == [111] * 8 + [0]


def test_an_empty_grid_starts_nothing(gpu: cuda.Gpu, memory: int, add: cuda.CudaFunction) -> None:
    gpu.launch(add, (0, 1, 1), 4, packed(memory, 1))
    assert read(gpu, memory, 1) == [0]


@pytest.mark.parametrize("shared", [0, 4096, 48 * 1024, 64 * 1024, -1])
def test_dynamic_shared_memory(
    gpu: cuda.Gpu, memory: int, add: cuda.CudaFunction, shared: int
) -> None:
    bytes_ = shared if shared >= 0 else gpu.shared_limit
    gpu.launch(add, 1, 32, packed(memory, 3), shared=bytes_)
    assert read(gpu, memory, 32) == [3] * 32
    assert add.occupancy(32, bytes_) >= 1


def test_invalid_launches(gpu: cuda.Gpu, memory: int, add: cuda.CudaFunction) -> None:
    with pytest.raises(LaunchError, match="must have 12 bytes, got 8"):
        gpu.launch(add, 1, 32, bytes(8))
    with pytest.raises(LaunchError, match=r"block must be from .*, got \(2048, 1, 1\)"):
        gpu.launch(add, 1, 2048, packed(memory, 1))
    with pytest.raises(LaunchError, match=r"grid must be at most .*, got \(1, 70000, 1\)"):
        gpu.launch(add, (1, 70000), 32, packed(memory, 1))
    with pytest.raises(LaunchError, match="dynamic shared memory of kernel 'add' must be at most"):
        gpu.launch(add, 1, 32, packed(memory, 1), shared=gpu.shared_limit + 1)
    with pytest.raises(LaunchError, match="grid must be a multiple of the cluster"):
        gpu.launch(add, 3, 32, packed(memory, 1), cluster=2)
    with pytest.raises(LaunchError, match="stream must be a CUDA stream, got str"):
        gpu.launch(add, 1, 32, packed(memory, 1), stream="stream")


@pytest.mark.sm("sm_90a", "sm_100a")
@pytest.mark.parametrize("ctas", [1, 2, 8, 16])
def test_clusters(gpu: cuda.Gpu, memory: int, ctas: int) -> None:
    with gpu.load(cuda.compile(CLUSTER, gpu.arch)) as loaded:
        launch = gpu.prepare(loaded["cluster"], 32, 32, cluster=ctas)
        launch(struct.pack("<Q", memory))
        with cuda.Stream(gpu) as stream:
            launch(struct.pack("<Q", memory + 256), stream)
            gpu.wait(stream)
        assert read(gpu, memory, 32) == [ctas] * 32
        assert read(gpu, memory + 256, 32) == [ctas] * 32


# --- streams, threads, graphs ---


def test_streams_of_all_types(gpu: cuda.Gpu, memory: int, add: cuda.CudaFunction) -> None:
    gpu.wait()
    with cuda.Stream(gpu) as own:
        for stream in (None, 0, own, own.handle):
            gpu.launch(add, 1, 4, packed(memory, 1), stream=stream)
            gpu.wait(stream)
    assert read(gpu, memory, 4) == [4] * 4


def test_a_torch_stream_and_tensor(gpu: cuda.Gpu, add: cuda.CudaFunction) -> None:
    torch = pytest.importorskip("torch")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        tensor = torch.zeros(64, dtype=torch.int32, device="cuda")
        gpu.launch(add, 2, 32, packed(tensor.data_ptr(), 9), stream=side)
        assert tensor.tolist() == [9] * 64


def test_a_cupy_stream_and_array(gpu: cuda.Gpu, add: cuda.CudaFunction) -> None:
    cupy = pytest.importorskip("cupy")
    with cupy.cuda.Stream(non_blocking=True) as side:
        array = cupy.zeros(64, dtype=cupy.int32)
        gpu.launch(add, 2, 32, packed(array.data.ptr, 9), stream=side)
        assert array.get().tolist() == [9] * 64


def test_threads_without_a_context(gpu: cuda.Gpu, memory: int, add: cuda.CudaFunction) -> None:
    launch = gpu.prepare(add, 1, 32)
    failed: list[BaseException] = []

    def work(index: int) -> None:
        try:
            for _ in range(50):
                launch(packed(memory + 128 * index, index + 1))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert read(gpu, memory, 128) == [50 * (n + 1) for n in range(4) for _ in range(32)]


def test_a_graph_captures_and_replays(gpu: cuda.Gpu, memory: int, add: cuda.CudaFunction) -> None:
    launch = gpu.prepare(add, 1, 4)
    gpu.wait()
    graph = cuda.Graph(gpu, lambda stream: launch(packed(memory, 2), stream), calls=3)
    assert read(gpu, memory, 4) == [0] * 4  # a capture runs nothing
    graph.replay()
    graph.replay()
    assert read(gpu, memory, 4) == [12] * 4
    graph.close()
    graph.close()


def test_an_error_during_capture_ends_the_capture(gpu: cuda.Gpu, memory: int) -> None:
    def fail(stream: int) -> None:
        raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        cuda.Graph(gpu, fail)
    assert read(gpu, memory, 1) == [0]


@pytest.mark.parametrize("graph", [True, False])
def test_timing(gpu: cuda.Gpu, memory: int, add: cuda.CudaFunction, graph: bool) -> None:
    launch = gpu.prepare(add, 1, 32)
    timing = cuda.time_us(lambda s: launch(packed(memory, 1), s), calls=5, replays=8, graph=graph)
    assert len(timing.samples) == 8
    assert 0.2 < timing.best <= timing.median < 1000


def test_a_prepared_launch_is_cheap(
    gpu: cuda.Gpu, memory: int, add: cuda.CudaFunction, record_property: object
) -> None:
    launch, params = gpu.prepare(add, 1, 32), cuda.ParamBlock(12, packed(memory, 1))
    best = float("inf")
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(100):
            launch(params, 0)
        best = min(best, (time.perf_counter() - start) / 100)
        gpu.wait()
    record_property("launch_us", best * 1e6)  # type: ignore[operator]
    assert best < 10e-6  # 2.8 µs is the overhead of cuda-bindings


def test_a_launch_preserves_the_current_gpu(memory: int, add: cuda.CudaFunction) -> None:
    if len(cuda.devices()) < 2:
        pytest.skip("needs two GPUs")
    first, second = cuda.gpu(0), cuda.gpu(1)
    with second.active():
        assert cuda.gpu() is second
        first.launch(add, 1, 4, packed(memory, 6))
        assert read(first, memory, 4) == [6] * 4
        assert int(call("cuCtxGetDevice")) == 1


# --- faults ---

FAULT = """
import struct, sys
from tilewright import cuda, errors
gpu = cuda.gpu()
add = gpu.load(cuda.compile(sys.stdin.read(), gpu.arch))["add"]
gpu.launch(add, 1, 32, struct.pack("<QI", 0x10, 1))
try:
    gpu.wait()
except errors.CudaError as error:
    print(error.name)
    print(error)
"""


def test_a_fault_reports_that_the_context_is_dead() -> None:
    source = str(Path(tilewright.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", FAULT],
        input=ADD,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": source},
        timeout=100,
        check=False,
    )
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in done.stdout, done.stdout + done.stderr
    assert "context is dead" in done.stdout
    assert "device='vm'" in done.stdout
