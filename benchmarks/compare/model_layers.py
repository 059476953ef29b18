"""Linear layers of language models, from the models' published configurations.

D = X Wᵀ with X of M tokens × K and weights W of N × K, so the BLAS layout is ``tn``. Matrices that
a model multiplies by the same X are concatenated along N: q, k and v; gate and up. A shape that
several models share is listed once, under the first of them.
"""

from __future__ import annotations

from typing import NamedTuple

TOKENS = (1, 16, 64, 128, 256, 512, 1024, 2048, 4096)  # M
TOKENS_PER_LAYER = 3  # by default


class ModelLayer(NamedTuple):
    """A layer with N output features and K input features."""

    model: str
    layer: str
    n: int
    k: int
    type: str = "bf16"

    def __str__(self) -> str:
        return f"{self.model} {self.layer}"


def _layers(model: str, type_: str = "bf16", **sizes: tuple[int, int]) -> list[ModelLayer]:
    names = {layer: layer.replace("_", " ") for layer in sizes}
    return [ModelLayer(model, names[layer], n, k, type_) for layer, (n, k) in sizes.items()]


LAYERS = (
    *_layers("GPT-2", qkv=(2304, 768), output=(768, 768), up=(3072, 768), down=(768, 3072),
             lm_head=(50257, 768)),
    *_layers("GPT-2 XL", qkv=(4800, 1600), output=(1600, 1600), up=(6400, 1600), down=(1600, 6400)),
    *_layers("Phi-3 mini", qkv=(9216, 3072), output=(3072, 3072), gate_up=(16384, 3072),
             down=(3072, 8192)),
    *_layers("Phi-4", qkv=(7680, 5120), gate_up=(35840, 5120), down=(5120, 17920)),
    *_layers("Llama 3 8B", qkv=(6144, 4096), output=(4096, 4096), gate_up=(28672, 4096),
             down=(4096, 14336), lm_head=(128256, 4096)),
    *_layers("Llama 3 70B", qkv=(10240, 8192), output=(8192, 8192), gate_up=(57344, 8192),
             down=(8192, 28672)),
    *_layers("Mistral 7B", lm_head=(32000, 4096)),
    *_layers("Mistral Nemo", qkv=(6144, 5120), output=(5120, 4096), gate_up=(28672, 5120),
             down=(5120, 14336)),
    *_layers("Mixtral 8x22B", qkv=(8192, 6144), output=(6144, 6144), expert_gate_up=(32768, 6144),
             expert_down=(6144, 16384)),
    *_layers("Qwen 2.5 7B", qkv=(4608, 3584), output=(3584, 3584), gate_up=(37888, 3584),
             down=(3584, 18944)),
    *_layers("Qwen 2.5 32B", qkv=(7168, 5120), gate_up=(55296, 5120), down=(5120, 27648)),
    *_layers("Qwen 3 8B", gate_up=(24576, 4096), down=(4096, 12288)),
    *_layers("Qwen 3 30B-A3B", qkv=(5120, 2048), output=(2048, 4096), expert_gate_up=(1536, 2048),
             expert_down=(2048, 768)),
    *_layers("Gemma 2 9B", qkv=(8192, 3584), output=(3584, 4096), down=(3584, 14336)),
    *_layers("Gemma 3 27B", qkv=(8192, 5376), gate_up=(43008, 5376), down=(5376, 21504)),
    *_layers("DeepSeek-V3", "e4m3", q_and_kv_down_projection=(2112, 7168),
             q_up_projection=(24576, 1536), kv_up_projection=(32768, 512), output=(7168, 16384),
             expert_gate_up=(4096, 7168), expert_down=(7168, 2048), gate_up=(36864, 7168),
             down=(7168, 18432)),
)  # fmt: skip


def layer_sizes(tokens: tuple[int, ...] | None = None) -> list[tuple[ModelLayer, int]]:
    """Each layer with each M of ``tokens``; with None, with three of ``TOKENS``, so chosen that
    each M occurs equally often and each layer has a small, a middle and a large one.
    """
    if tokens is not None:
        return [(layer, m) for layer in LAYERS for m in tokens]
    stride = len(TOKENS) // TOKENS_PER_LAYER
    return [(layer, m) for i, layer in enumerate(LAYERS) for m in TOKENS[i % stride :: stride]]
