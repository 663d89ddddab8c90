"""Published shapes by name. The tests check each one's number of parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from placement_proofs.models import Shape

DENSE = Shape(32, 4096, 32, 8, 14336, 128256, 8192, fused_attention=True)
"""A dense decoder of 8.0e9 parameters with grouped-query attention."""
MOE = Shape(32, 4096, 32, 8, 14336, 32000, 8192, experts=8, gated=False, fused_attention=True)
"""The same with 8 experts a layer."""
TINY = Shape()


def _gpt(layers: int, hidden: int, heads: int, vocabulary: int, sequence: int) -> Shape:
    """GPT-2 and GPT-3: biases everywhere, learned positions, the head tied to the embedding."""
    return Shape(
        layers,
        hidden,
        heads,
        heads,
        4 * hidden,
        vocabulary,
        sequence,
        gated=False,
        bias=True,
        tied=True,
        norm_bias=True,
        positions=sequence,
    )


def _llama(
    layers: int,
    hidden: int,
    heads: int,
    ffn: int,
    sequence: int,
    kv_heads: int = 0,
    vocabulary: int = 32000,
) -> Shape:
    """LLaMA and its likes: gated feed-forward part, no biases, an untied head, fused attention."""
    keys = kv_heads or heads
    return Shape(layers, hidden, heads, keys, ffn, vocabulary, sequence, fused_attention=True)


def _qwen(shape: Shape, *, tied: bool = False) -> Shape:
    """Qwen2: biases of queries, keys and values."""
    return replace(shape, qkv_bias=True, tied=tied)


PRESETS: Mapping[str, Shape] = {
    "dense": DENSE,
    "moe": MOE,
    "tiny": TINY,
    "gpt2": _gpt(12, 768, 12, 50257, 1024),
    "gpt2-medium": _gpt(24, 1024, 16, 50257, 1024),
    "gpt2-large": _gpt(36, 1280, 20, 50257, 1024),
    "gpt2-xl": _gpt(48, 1600, 25, 50257, 1024),
    "gpt3-6.7b": _gpt(32, 4096, 32, 50257, 2048),
    "gpt3-175b": _gpt(96, 12288, 96, 50257, 2048),
    "megatron-22b": _gpt(48, 6144, 64, 51200, 2048),
    "megatron-175b": _gpt(96, 12288, 96, 51200, 2048),
    "megatron-530b": _gpt(105, 20480, 128, 51200, 2048),
    "megatron-1t": _gpt(128, 25600, 160, 51200, 2048),
    "llama-7b": _llama(32, 4096, 32, 11008, 2048),
    "llama-13b": _llama(40, 5120, 40, 13824, 2048),
    "llama-30b": _llama(60, 6656, 52, 17920, 2048),
    "llama-65b": _llama(80, 8192, 64, 22016, 2048),
    "llama2-7b": _llama(32, 4096, 32, 11008, 4096),
    "llama2-13b": _llama(40, 5120, 40, 13824, 4096),
    "llama2-70b": _llama(80, 8192, 64, 28672, 4096, 8),
    "llama3-8b": _llama(32, 4096, 32, 14336, 8192, 8, 128256),
    "llama3-70b": _llama(80, 8192, 64, 28672, 8192, 8, 128256),
    "llama3-405b": _llama(126, 16384, 128, 53248, 8192, 8, 128256),
    "tinyllama-1.1b": _llama(22, 2048, 32, 5632, 2048, 4),
    "mistral-7b": _llama(32, 4096, 32, 14336, 8192, 8),
    "mixtral-8x7b": replace(_llama(32, 4096, 32, 14336, 8192, 8), experts=8, top_k=2),
    "mixtral-8x22b": replace(_llama(56, 6144, 48, 16384, 8192, 8, 32768), experts=8, top_k=2),
    "qwen2.5-0.5b": _qwen(_llama(24, 896, 14, 4864, 8192, 2, 151936), tied=True),
    "qwen2.5-7b": _qwen(_llama(28, 3584, 28, 18944, 8192, 4, 152064)),
    "qwen2.5-32b": _qwen(_llama(64, 5120, 40, 27648, 8192, 8, 152064)),
    "qwen2.5-72b": _qwen(_llama(80, 8192, 64, 29568, 8192, 8, 152064)),
}
"""Shapes by name; ``abstract`` and ``perceptron`` are models without one. Sources: GPT-2 and GPT-3
(arXiv 2005.14165), Megatron (arXiv 2205.05198, table 3), LLaMA (arXiv 2302.13971, 2307.09288,
2407.21783), Mixtral (arXiv 2401.04088), Qwen2.5 (arXiv 2412.15115); sequences of 8192 stand for
longer contexts."""
