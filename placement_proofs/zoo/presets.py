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


def _qwen3(layers: int, hidden: int, heads: int, ffn: int, kv_heads: int = 8) -> Shape:
    """Qwen3: heads of 128 elements, queries and keys normalised head by head, no biases."""
    shape = _llama(layers, hidden, heads, ffn, 8192, kv_heads, 151936)
    return replace(shape, head_dim=128, qk_norm=True)


def _qwen3_moe(layers: int, hidden: int, heads: int, expert_ffn: int) -> Shape:
    """Qwen3 with 128 experts, 8 of them for each token, in every layer."""
    shape = _qwen3(layers, hidden, heads, expert_ffn, 4)
    return replace(shape, experts=128, top_k=8)


def _gemma(layers: int, hidden: int, heads: int, ffn: int, kv_heads: int, head_dim: int) -> Shape:
    """Gemma: heads of a size of their own, a gated feed-forward part, the head tied."""
    shape = _llama(layers, hidden, heads, ffn, 8192, kv_heads, 256000)
    return replace(shape, head_dim=head_dim, tied=True)


def _gemma2(layers: int, hidden: int, heads: int, ffn: int, kv_heads: int, head_dim: int) -> Shape:
    """Gemma 2: norms before and after attention and feed-forward part."""
    return replace(_gemma(layers, hidden, heads, ffn, kv_heads, head_dim), post_norm=True)


def _olmo2(layers: int, hidden: int, heads: int, ffn: int) -> Shape:
    """OLMo 2: norms after attention and feed-forward part alone, and of whole queries and keys."""
    shape = _llama(layers, hidden, heads, ffn, 4096, heads, 100352)
    return replace(shape, pre_norm=False, post_norm=True, whole_qk_norm=True)


def _deepseek(
    layers: int,
    hidden: int,
    heads: int,
    q_rank: int,
    ffn: tuple[int, int, int],
    experts: tuple[int, int],
    dense_layers: int,
    vocabulary: int,
) -> Shape:
    """DeepSeek-V2 and V3; ``ffn`` is of dense layers, experts and shared experts together."""
    dense, one, shared = ffn
    shape = _llama(layers, hidden, heads, dense, 4096, heads, vocabulary)
    latent = replace(shape, q_rank=q_rank, kv_rank=512, nope_dim=128, rope_dim=64, value_dim=128)
    routed, top_k = experts
    return replace(
        latent,
        experts=routed,
        top_k=top_k,
        expert_ffn=one,
        shared_ffn=shared,
        dense_layers=dense_layers,
    )


PRESETS: Mapping[str, Shape] = {
    "dense": DENSE,
    "moe": MOE,
    "tiny": TINY,
    "gpt2": _gpt(12, 768, 12, 50257, 1024),
    "gpt2-medium": _gpt(24, 1024, 16, 50257, 1024),
    "gpt2-large": _gpt(36, 1280, 20, 50257, 1024),
    "gpt2-xl": _gpt(48, 1600, 25, 50257, 1024),
    "gpt3-125m": _gpt(12, 768, 12, 50257, 2048),
    "gpt3-350m": _gpt(24, 1024, 16, 50257, 2048),
    "gpt3-760m": _gpt(24, 1536, 16, 50257, 2048),
    "gpt3-2.7b": _gpt(32, 2560, 32, 50257, 2048),
    "gpt3-6.7b": _gpt(32, 4096, 32, 50257, 2048),
    "gpt3-13b": _gpt(40, 5120, 40, 50257, 2048),
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
    "llama3.2-1b": replace(_llama(16, 2048, 32, 8192, 8192, 8, 128256), tied=True),
    "llama3.2-3b": replace(_llama(28, 3072, 24, 8192, 8192, 8, 128256), tied=True),
    "tinyllama-1.1b": _llama(22, 2048, 32, 5632, 2048, 4),
    "mistral-7b": _llama(32, 4096, 32, 14336, 8192, 8),
    "mixtral-8x7b": replace(_llama(32, 4096, 32, 14336, 8192, 8), experts=8, top_k=2),
    "mixtral-8x22b": replace(_llama(56, 6144, 48, 16384, 8192, 8, 32768), experts=8, top_k=2),
    "qwen2.5-0.5b": _qwen(_llama(24, 896, 14, 4864, 8192, 2, 151936), tied=True),
    "qwen2.5-7b": _qwen(_llama(28, 3584, 28, 18944, 8192, 4, 152064)),
    "qwen2.5-32b": _qwen(_llama(64, 5120, 40, 27648, 8192, 8, 152064)),
    "qwen2.5-72b": _qwen(_llama(80, 8192, 64, 29568, 8192, 8, 152064)),
    "qwen3-0.6b": replace(_qwen3(28, 1024, 16, 3072), tied=True),
    "qwen3-1.7b": replace(_qwen3(28, 2048, 16, 6144), tied=True),
    "qwen3-4b": replace(_qwen3(36, 2560, 32, 9728), tied=True),
    "qwen3-8b": _qwen3(36, 4096, 32, 12288),
    "qwen3-14b": _qwen3(40, 5120, 40, 17408),
    "qwen3-32b": _qwen3(64, 5120, 64, 25600),
    "qwen3-30b-a3b": _qwen3_moe(48, 2048, 32, 768),
    "qwen3-235b-a22b": _qwen3_moe(94, 4096, 64, 1536),
    "deepseek-v2-lite": _deepseek(27, 2048, 16, 0, (10944, 1408, 2816), (64, 6), 1, 102400),
    "deepseek-v2": _deepseek(60, 5120, 128, 1536, (12288, 1536, 3072), (160, 6), 1, 102400),
    "deepseek-v3": _deepseek(61, 7168, 128, 1536, (18432, 2048, 2048), (256, 8), 3, 129280),
    "gemma-2b": _gemma(18, 2048, 8, 16384, 1, 256),
    "gemma-7b": _gemma(28, 3072, 16, 24576, 16, 256),
    "gemma2-2b": _gemma2(26, 2304, 8, 9216, 4, 256),
    "gemma2-9b": _gemma2(42, 3584, 16, 14336, 8, 256),
    "gemma2-27b": _gemma2(46, 4608, 32, 36864, 16, 128),
    "olmo2-7b": _olmo2(32, 4096, 32, 11008),
    "olmo2-13b": _olmo2(40, 5120, 40, 13824),
}
"""Shapes by name; ``abstract`` and ``perceptron`` are models without one. Sources: GPT-2 and GPT-3
(arXiv 2005.14165), Megatron (arXiv 2205.05198, table 3), LLaMA (arXiv 2302.13971, 2307.09288,
2407.21783; 3.2 from its config.json), Mixtral (arXiv 2401.04088), Qwen2.5 (arXiv 2412.15115), Qwen3
(arXiv 2505.09388), DeepSeek-V2 (arXiv 2405.04434) and V3 (2412.19437), Gemma (arXiv 2403.08295,
2408.00118), OLMo 2 (arXiv 2501.00656), each with the config.json of its checkpoint. Sequences of
8192 stand for longer contexts. DeepSeek-V3's module of multi-token prediction is not in its shape,
nor are the correction biases of its routers, which no gradient trains."""
