import tilewright


def gelu_product(a, b, alpha, bias):
    def f(acc, alpha, bias):
        return tilewright.cast(tilewright.gelu(alpha * acc + bias), "e4m3")

    return tilewright.matmul(a, b, epilogue=f, alpha=alpha, bias=bias)
