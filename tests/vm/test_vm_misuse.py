"""What a hostile reader tried: each a typed error, or right."""

from __future__ import annotations

import time
import tracemalloc

import numpy as np
import pytest

import tilewright
from ptx_kernels.simt import kernel
from tilewright import ptx
from tilewright.errors import (
    DeviceError,
    DtypeError,
    KernelError,
    LaunchError,
    PtxCheckError,
    PtxError,
    PtxSyntaxError,
)
from tilewright.vm import Machine

pytestmark = pytest.mark.vm


@pytest.mark.parametrize(
    "options", [{"threads": -1}, {"threads": 1.5}, {"step_limit": -5}, {"seed": "x"}]
)
def test_invalid_machine_options(options):
    with pytest.raises(LaunchError, match="must be an integer of at least"):
        Machine(**options)


@pytest.mark.parametrize("size", [1.5, "x", -1, None])
def test_allocation_size_must_be_an_integer(size):
    machine = Machine()
    with pytest.raises(DeviceError, match="can't allocate"):
        machine.alloc(size)
    assert machine.download(machine.upload([1, 2]), np.zeros(2, np.int64)).tolist() == [1, 2]


def test_object_arrays_are_refused():
    with pytest.raises(DtypeError, match="an array of numbers, got"):
        Machine().upload(np.array([object()]))


@pytest.mark.parametrize("address", ["x", None, 1.5, 0])
def test_free_of_an_invalid_address(address):
    with pytest.raises(DeviceError, match=r"free of 0x0|an address must be an int"):
        Machine().free(address)


def test_refused_module_allocates_nothing():
    machine = Machine()
    text = kernel("").replace(".visible .entry", ".global .u64 g[1] = {nothing};\n.entry")
    with pytest.raises(PtxError, match="nothing"):
        machine.load(text)
    assert not any(piece.live for piece in machine.memory.allocations)


@pytest.mark.parametrize("text", [None, b"x", 5])
def test_ptx_must_be_text(text):
    with pytest.raises(PtxSyntaxError, match="PTX text must be a str"):
        ptx.parse(text)


@pytest.mark.parametrize(
    ("space", "what"), [("local", "bytes of local memory"), ("shared", "static shared memory")]
)
def test_local_and_shared_memory_limits(space, what):
    machine = Machine()
    machine.load(kernel(f".{space} .b8 x[200000000]; st.{space}.u32 [x], 1;"))
    with pytest.raises(LaunchError, match=what):
        machine.launch("k", 1, 32, [0] * 10)


def test_global_memory_without_values_costs_nothing():
    start = time.perf_counter()
    Machine().load(kernel("").replace(".visible .entry", ".global .b8 g[4000000000];\n.entry"))
    assert time.perf_counter() - start < 1


HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"


@pytest.mark.parametrize(
    "variable",
    [
        ".global .u8 x[2147483648] = {1, 2, 3};",
        ".const .u8 x[65536][65536] = {{1, 2, 3}, {4}};",
        ".global .u64 x[1073741824] = {0x030201};",
    ],
)
def test_global_memory_with_a_few_values_costs_as_little(variable):
    machine = Machine()
    tracemalloc.start()
    try:
        machine.load(f"{HEAD}{variable}\n.entry k() {{ ret; }}")
        assert tracemalloc.get_traced_memory()[1] < 1 << 22
    finally:
        tracemalloc.stop()
    address, size = machine.variables["x"]
    assert size >= 1 << 31
    assert machine.download(address, np.zeros(4, np.uint8)).tolist() == [1, 2, 3, 0]
    row = machine.download(address + 65536, np.zeros(2, np.uint8)).tolist()
    assert row == ([4, 0] if "][" in variable else [0, 0])


def test_variable_that_does_not_fit_allocates_nothing():
    machine = Machine()
    text = ".global .u8 x[8]; .global .u8 y[70000000000];"
    with pytest.raises(DeviceError, match="has no 70000000000 contiguous free bytes"):
        machine.load(f"{HEAD}{text}\n.entry k() {{ ret; }}")
    assert not any(piece.live for piece in machine.memory.allocations)


def test_kernel_parameters_have_at_most_32764_bytes():
    def text(size, version="8.7"):
        return f"{HEAD.replace('8.7', version)}.entry k(.param .b8 x[{size}]) {{ ret; }}"

    for size, version in ((2147483648, "8.7"), (32765, "8.1"), (4353, "8.0")):
        most = 4352 if version == "8.0" else 32764
        with pytest.raises(PtxCheckError, match=rf"take {size} bytes; .* at most {most}"):
            ptx.check(ptx.parse(text(size, version)))
    for size, version in ((32764, "8.1"), (4352, "8.0")):
        ptx.check(ptx.parse(text(size, version)))
    assert ptx.needs(ptx.parse(text(4352)))[0] < (8, 1)
    assert ptx.needs(ptx.parse(text(4353)))[0] == (8, 1)
    machine = Machine()
    machine.load(text(2147483648))
    with pytest.raises(PtxCheckError, match="take 2147483648 bytes"):
        machine.launch("k", 1, 1, [b""])


def test_traced_kernel_parameters_have_at_most_32764_bytes():
    params = {"x": "bytes 30000", "y": "bytes 3000"}
    with pytest.raises(KernelError, match="must have at most 32764 bytes, got 33000"):
        tilewright.kernel(lambda k, x, y: None, params=params, name="f").trace()
    del params["y"]
    module = tilewright.kernel(lambda k, x: None, params=params, name="f").trace().module
    assert module.version >= (8, 1)


@pytest.mark.parametrize("args", [None, 5])
def test_arguments_must_be_a_sequence(args):
    machine = Machine()
    machine.load(kernel(""))
    with pytest.raises(LaunchError, match="args must be a sequence"):
        machine.launch("k", 1, 32, args)


@tilewright.kernel(params={"x": "ptr f32", "y": "ptr f32"}, block=32)
def plus_one(k, x, y):
    y[k.tid.x] = x[k.tid.x] + 1.0


def test_same_array_twice_is_written_in_either_order():
    for flip in (False, True):
        x = np.zeros(32, np.float32)
        fixed = x.view()
        fixed.flags.writeable = False
        plus_one[1](*((x, x) if flip else (fixed, x)), device="vm")
        assert (x == 1).all()


def test_memory_shared_under_two_types_is_refused():
    b = np.zeros(64, np.float16)
    with pytest.raises(LaunchError, match="must not share memory"):
        plus_one[1](b.view(np.float32), b[:32].view(np.float32)[:16], device="vm")
