import nvmath
import torch


def gelu_product(a, b, alpha, bias):
    return nvmath.linalg.advanced.matmul(
        a,
        b,
        alpha=alpha,
        epilog=nvmath.linalg.advanced.MatmulEpilog.GELU_BIAS,
        epilog_inputs={"bias": bias.to(torch.bfloat16)},
        quantization_scales={"a": 1, "b": 1, "d": 1},
        options={"result_type": nvmath.CudaDataType.CUDA_R_8F_E4M3},
    )
