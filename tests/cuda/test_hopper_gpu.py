"""TMA, mbarriers, wgmma and a cluster on the GPU: the bits of the virtual machine."""

import numpy as np
import pytest

from ptx_kernels.cluster_addresses import CLUSTER, expected, text
from ptx_kernels.hopper_gemm import THREADS, M, N, arguments, gemm, on_machine, random_matrices
from ptx_kernels.simt_gpu import on_gpu
from tilewright import cuda
from tilewright.ptx import parameter_block

pytestmark = pytest.mark.gpu


@pytest.mark.sm("sm_90a")
@pytest.mark.parametrize(("stages", "cluster"), [(1, 1), (3, 1), (2, 2)])
@pytest.mark.parametrize("size", [(256, 256, 448), (512, 384, 4096)])
def test_a_gemm_has_the_bits_of_the_virtual_machine(gpu, stages, cluster, size):
    traced, arrays = gemm(stages, cluster), random_matrices(*size)
    addresses = [gpu.alloc(x.nbytes) for x in arrays]
    for address, array in zip(addresses, arrays, strict=True):
        gpu.upload(address, array.view(np.uint16))
    function = gpu.load(cuda.compile(traced.ptx, gpu.arch))["gemm"]
    grid, shared = (size[0] // M, size[1] // N), traced.dynamic_shared
    params = parameter_block.layout(traced.entry).pack(arguments(addresses, *size, cluster))
    for _ in range(3):
        gpu.launch(function, grid, THREADS, params, shared=shared, cluster=cluster)
    gpu.wait()
    d = np.empty(arrays[2].shape, np.uint16)
    gpu.download(d, addresses[2])
    for address in addresses:
        gpu.free(address)
    expected = on_machine(traced.ptx, size, stages, cluster, seed=0)
    np.testing.assert_array_equal(d, expected.view(np.uint16))


@pytest.mark.sm("sm_90a")
def test_shared_memory_addresses_have_the_cta_rank():
    random_matrices = np.zeros_like(expected())
    (made,) = on_gpu(text(), [random_matrices], grid=len(random_matrices), block=1, cluster=CLUSTER)
    np.testing.assert_array_equal(made, expected())
