"""PTX to cubin by nvJitLink, which needs no GPU: its code, its reports, its error locations."""

from __future__ import annotations

import pytest

from tilewright import cuda
from tilewright.cuda.cubin import Cubin, KernelUsage, extent, param_layout
from tilewright.errors import CudaError, DeviceError, TargetError
from tilewright.ptx import parameter_block, parse

pytest.importorskip("cuda.bindings.nvjitlink", reason="no cuda-bindings")

pytestmark = pytest.mark.tools
if not cuda.compiler().startswith("nvJitLink"):
    pytest.skip("no nvJitLink", allow_module_level=True)

PTX = """.version 8.0
.target sm_80
.address_size 64
.visible .entry first(.param .u64 p)
{
    .reg .b64 %a;
    .reg .b32 %r<3>;
    ld.param.u64 %a, [p];
    ld.global.u32 %r1, [%a];
    add.s32 %r2, %r1, 1;
    st.global.u32 [%a], %r2;
    ret;
}
.visible .entry second()
{
    ret;
}
"""
FMA = PTX.replace("add.s32 %r2, %r1, 1;", "mul.f32 %r2, %r1, %r1;\n    add.f32 %r2, %r2, %r1;")


def test_target_of_the_ptx_or_arch() -> None:
    assert cuda.target_of(PTX) == "sm_80"
    assert cuda.compile(PTX).arch == "sm_80"
    for arch in ("sm_86", "sm_89", "sm_90", "sm_90a"):
        assert cuda.compile(PTX, arch).arch == arch


def test_str_bytes_and_trailing_zero_give_the_same_code() -> None:
    codes = {cuda.compile(ptx).code for ptx in (PTX, PTX.encode(), PTX.encode() + b"\0")}
    assert len(codes) == 1


def test_usage_and_serialization_of_a_cubin() -> None:
    cubin = cuda.compile(PTX, "sm_90a")
    assert cubin.code[:4] == b"\x7fELF"
    assert {u.entry for u in cubin.usage} == {"first", "second"}
    assert 0 < cubin.registers <= 16
    assert cubin.spills == 0
    assert cuda.Cubin.unpack(cubin.pack()) == cubin


def test_spills_are_reported() -> None:
    count = 60
    loads = "\n".join(f"ld.volatile.global.f32 %f{n}, [%a+{4 * n}];" for n in range(count))
    stores = "\n".join(f"st.volatile.global.f32 [%a+{4 * n}], %f{n};" for n in range(count))
    body = f".reg .f32 %f<{count}>;\n{loads}\n{stores}"
    ptx = PTX.replace("ld.global.u32 %r1, [%a];", body)
    assert cuda.compile(ptx, max_registers=24).spills > 0
    assert cuda.compile(ptx).spills == 0


def test_contraction_can_be_forbidden() -> None:
    rounded = FMA.replace("mul.f32", "mul.rn.f32").replace("add.f32", "add.rn.f32")
    separate = cuda.compile(FMA, contract=False).code
    assert separate == cuda.compile(rounded, contract=False).code
    assert separate != cuda.compile(FMA).code


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("bogus.u32 %r2, 3;", "bogus"),
        ("add.s32 %r2, %a, 3;", "Arguments mismatch"),
        ("add.s32 %r2, %r1 3;", "syntax error"),
        ("add.s32 %r2, %undeclared, 3;", "%undeclared"),
    ],
)
def test_an_error_has_the_line_of_the_ptx(wrong: str, says: str) -> None:
    with pytest.raises(CudaError, match=says) as caught:
        cuda.compile(PTX.replace("add.s32 %r2, %r1, 1;", wrong), file="my.ptx")
    location = caught.value.location
    assert location is not None
    assert (location.file, location.line, location.column) == ("my.ptx", 10, 5)
    assert wrong in str(caught.value)
    assert "ptxas" in caught.value.__notes__[0]
    assert caught.value.name == "NVJITLINK_ERROR_PTX_COMPILE"


def test_unsupported_targets() -> None:
    with pytest.raises(CudaError, match="sm_90a"):
        cuda.compile(PTX.replace(".target sm_80", ".target sm_90a"), "sm_90")
    with pytest.raises(TargetError, match=r"the PTX must have a \.target line"):
        cuda.compile("// nothing")
    with pytest.raises((DeviceError, TargetError), match="sm_999"):
        cuda.compile(PTX, "sm_999")


def test_unsupported_ptx_version() -> None:
    with pytest.raises(DeviceError, match=r"99\.0"):
        cuda.compile(PTX.replace(".version 8.0", ".version 99.0"))


@pytest.mark.skipif(cuda.available(), reason="there is a GPU")
def test_errors_without_a_gpu() -> None:
    assert "NVIDIA" in cuda.why_not()
    for query in (cuda.devices, cuda.gpu, cuda.version, lambda: cuda.time_us(lambda stream: None)):
        with pytest.raises(DeviceError, match="driver"):
            query()


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120"])
def test_parameter_layout_of_a_cubin(arch: str) -> None:
    code = cuda.compile(PTX, arch).code
    assert param_layout(code, "first") == [(0, 8)]
    assert param_layout(code, "second") in ([], [(0, 0)], None)
    assert param_layout(code, "third") is None and param_layout(code[:100], "first") is None


def test_a_tensor_map_is_aligned_in_the_constant_bank() -> None:
    params = ".param .align 64 .b8 m[128], .param .u32 n"
    text = f".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry f({params}) {{ ret; }}"
    first, size = extent(param_layout(cuda.compile(text, "sm_90").code, "f") or [])
    assert size == 132 and (first + 0x210) % 64 == 0


def test_parameters_are_packed_at_the_kernel_s_offsets() -> None:
    declared = ".param .u32 n, .param .align 128 .b8 m[128], .param .u64 p"
    head = ".version 8.0\n.target sm_90\n.address_size 64\n"
    text = f"{head}.visible .entry f({declared}) {{ ret; }}"
    params = param_layout(cuda.compile(text, "sm_90").code, "f")
    assert params == [(0, 4), (0x280 - 0x210, 128), (0x300 - 0x210, 8)]  # the block is at 0x210
    layout = parameter_block.layout(parse(text).entries[0]).at([offset for offset, _ in params])
    packed = layout.pack([1, bytes(128), 2])
    assert (len(packed), packed[0], packed[0x300 - 0x210]) == (248, 1, 2)


def test_a_short_report_has_registers_and_local_memory() -> None:
    log = "info : Function properties for 'f':\ninfo : used 14 registers, 0 stack, 8 bytes lmem\n"
    assert Cubin(b"", "sm_90a", log).usage == (KernelUsage("f", 14, 8),)
