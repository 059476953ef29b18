"""Whole programs on the GPU: setmaxnreg by ptxas and by the driver; launches that may overlap."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from tilewright import cuda
from tilewright.cuda import assembler
from tilewright.errors import CudaError, TilewrightError

pytestmark = [pytest.mark.gpu, pytest.mark.sm("sm_90a")]

THREADS = 384
# out[thread] = value, by warpgroups that release registers; the tensor map tests its alignment
WHOLE = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry whole(.param .align 64 .b8 map[128], .param .u64 out, .param .u32 value)
.maxntid 384, 1, 1
.minnctapersm 1
{
    .reg .b32 %r<3>;
    .reg .b64 %a<3>;
    setmaxnreg.dec.sync.aligned.u32 24;
    ld.param.u64 %a1, [out];
    ld.param.u32 %r1, [value];
    mov.u32 %r2, %tid.x;
    mad.wide.u32 %a2, %r2, 4, %a1;
    st.global.u32 [%a2], %r1;
    ret;
}
"""

# out = (begin, end) in ns; it lets the next kernel start, and takes 500 µs
SLOW = """.version 7.8
.target sm_90
.address_size 64
.visible .entry slow(.param .u64 out)
{
    .reg .pred %p;
    .reg .b64 %a, %begin, %end, %took;
    mov.u64 %begin, %globaltimer;
    griddepcontrol.launch_dependents;
AGAIN:
    mov.u64 %end, %globaltimer;
    sub.u64 %took, %end, %begin;
    setp.lt.u64 %p, %took, 500000;
    @%p bra AGAIN;
    griddepcontrol.wait;
    ld.param.u64 %a, [out];
    st.global.v2.u64 [%a], {%begin, %end};
    ret;
}
"""


def assembled(assemble: str, ptx: str) -> cuda.Cubin:
    options = assembler.AssemblerOptions(True, False, None, "my.ptx")
    try:
        return getattr(assembler, assemble)(ptx, "sm_90a", options)
    except TilewrightError as error:
        if isinstance(error, CudaError):
            raise
        pytest.skip(error.message)


@pytest.mark.parametrize("assemble", ["with_ptxas", "on_load"])
def test_setmaxnreg_takes_effect(gpu: cuda.Gpu, memory: int, assemble: str) -> None:
    with gpu.load(assembled(assemble, WHOLE)) as loaded:
        whole = loaded["whole"]
        assert (whole.registers, whole.local, whole.warnings) == (168, 0, ())
        # the block is at 0x210 in the constant bank, where the tensor map is aligned
        assert (whole.param_lead, whole.param_bytes) == (0x30, 140)
        gpu.launch(whole, 1, THREADS, struct.pack("<128xQI", memory, 7))
        out = np.empty(THREADS, np.uint32)
        gpu.download(out, memory)
        assert out.tolist() == [7] * THREADS


def test_warnings_and_error_locations_of_the_driver(gpu: cuda.Gpu) -> None:
    unknown = WHOLE.replace(".minnctapersm 1\n", f"// {np.random.default_rng().bytes(8).hex()}\n")
    with gpu.load(assembled("on_load", unknown)) as loaded:
        assert any("setmaxnreg" in text for text in loaded["whole"].warnings), loaded.image.log
    with pytest.raises(CudaError, match="bogus") as caught:
        gpu.load(WHOLE.replace("ret;", "bogus.u32 3;").encode())
    assert caught.value.location and caught.value.location.line == 16


def test_compile_chooses_a_whole_program(gpu: cuda.Gpu) -> None:
    cubin = cuda.compile(WHOLE, gpu.arch)
    assert cubin.compiler == cuda.compiler(WHOLE) != cuda.compiler(SLOW)
    with gpu.load(cubin) as loaded:
        assert loaded["whole"].registers == 168


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("cluster", [None, 1, 2])
@pytest.mark.parametrize("programmatic", [False, True])
def test_a_programmatic_launch_overlaps(
    gpu: cuda.Gpu, memory: int, programmatic: bool, cluster: int | None, graph: bool
) -> None:
    with gpu.load(cuda.compile(SLOW, gpu.arch)) as loaded, cuda.Stream(gpu) as stream:
        launch = gpu.prepare(loaded["slow"], 2, 1, cluster=cluster, programmatic=programmatic)

        def both(handle: int) -> None:
            for address in (memory, memory + 16):
                launch(struct.pack("<Q", address), handle)

        if graph:
            captured = cuda.Graph(gpu, both)
            captured.replay(stream)
        else:
            both(stream.handle)
        gpu.wait(stream)
        if graph:
            captured.close()
    times = np.empty((2, 2), np.uint64)
    gpu.download(times, memory)
    (_, end), (begin, _) = times.tolist()
    assert (begin < end) == programmatic
