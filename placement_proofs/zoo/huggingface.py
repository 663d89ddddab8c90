"""Shapes from a ``config.json`` of the Hugging Face hub that lies on the disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from placement_proofs.errors import IllFormed
from placement_proofs.models import Shape

Table: TypeAlias = Mapping[str, Any]


def load_shape(path: Path) -> Shape:
    """The shape that a ``config.json`` describes.

    Raises:
        IllFormed: not JSON, a kind of model without a shape here, or a missing key.
    """
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, UnicodeDecodeError, RecursionError) as error:
        raise IllFormed(str(path), str(error), "the file is JSON in UTF-8", "correct it") from None
    if not isinstance(table, dict):
        raise IllFormed(str(path), "no object", "a config.json is a JSON object", "correct it")
    return shape_of(table, str(path))


def shape_of(table: Table, place: str = "config.json") -> Shape:
    """The shape of a configuration.

    Raises:
        IllFormed: a kind of model without a shape here, or a key that is missing or wrong.
    """
    kind = table.get("model_type")
    if not isinstance(kind, str) or kind not in KINDS:
        raise IllFormed(
            f"{place}: model_type",
            repr(kind)[:60],
            f"model types are {', '.join(KINDS)}",
            "write a TOML file with layers, hidden, heads, ... instead",
        )
    return KINDS[kind](_Reader(table, place))


class _Reader:
    """Reads whole numbers and flags of a table; says where one is wrong."""

    def __init__(self, table: Table, place: str) -> None:
        self.table = table
        self.place = place

    def number(self, key: str, default: int | None = None) -> int:
        value = self.table.get(key)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10**9:
            raise IllFormed(
                f"{self.place}: {key}", repr(value)[:60], "a whole number from 1", f"write {key}"
            )
        return value

    def count(self, key: str) -> int:
        """A whole number, 0 where the key is null or not there."""
        return 0 if self.table.get(key) in (None, 0) else self.number(key)

    def refuse(self, key: str, rule: str, *allowed: object) -> None:
        """Refuse a key whose value is none of those that a shape can say.

        Raises:
            IllFormed: it is another one.
        """
        value = self.table.get(key)
        if value is not None and value not in allowed:
            raise IllFormed(f"{self.place}: {key}", json.dumps(value)[:60], rule, "use a TOML file")

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.table.get(key, default)
        if not isinstance(value, bool):
            raise IllFormed(
                f"{self.place}: {key}", repr(value)[:60], "true or false", "write one of the two"
            )
        return value


def _llama(read: _Reader, head_dim: int = 0, *, tied: bool = False) -> Shape:
    """``head_dim`` and ``tied`` are the defaults of a model type."""
    heads = read.number("num_attention_heads")
    hidden = read.number("hidden_size")
    read.refuse("mlp_bias", "these shapes have no such bias", False)
    return Shape(
        layers=read.number("num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=read.number("num_key_value_heads", heads),
        ffn=read.number("intermediate_size"),
        vocabulary=read.number("vocab_size"),
        sequence=read.number("max_position_embeddings"),
        tied=read.flag("tie_word_embeddings", tied),
        fused_attention=True,
        head_dim=read.number("head_dim", head_dim or max(1, hidden // heads)),
    )


def _without_bias(read: _Reader, head_dim: int = 0, *, tied: bool = False) -> Shape:
    read.refuse("attention_bias", "these shapes have no bias of the output projection alone", False)
    return _llama(read, head_dim, tied=tied)


def _mixtral(read: _Reader) -> Shape:
    experts = read.number("num_local_experts")
    return replace(_llama(read), experts=experts, top_k=read.number("num_experts_per_tok", 2))


def _qwen2(read: _Reader) -> Shape:
    return replace(_llama(read), qkv_bias=True)


def _qwen3(read: _Reader) -> Shape:
    return replace(_without_bias(read, 128), qk_norm=True)


def _qwen3_moe(read: _Reader) -> Shape:
    rule = "these shapes have experts in every layer"
    read.refuse("mlp_only_layers", rule, [])
    read.refuse("decoder_sparse_step", rule, 1)
    shape = _qwen3(read)
    return replace(
        shape,
        ffn=read.number("moe_intermediate_size"),
        experts=read.number("num_experts"),
        top_k=read.number("num_experts_per_tok"),
    )


def _deepseek(read: _Reader) -> Shape:
    """DeepSeek-V2 and V3: latent attention, dense layers first, shared experts."""
    rule = "layers with experts follow the dense ones without a gap"
    read.refuse("moe_layer_freq", rule, 1)
    expert = read.number("moe_intermediate_size")
    return replace(
        _without_bias(read),
        head_dim=0,
        kv_rank=read.number("kv_lora_rank"),
        q_rank=read.count("q_lora_rank"),
        nope_dim=read.number("qk_nope_head_dim"),
        rope_dim=read.number("qk_rope_head_dim"),
        value_dim=read.number("v_head_dim"),
        experts=read.number("n_routed_experts"),
        top_k=read.number("num_experts_per_tok"),
        expert_ffn=expert,
        shared_ffn=read.count("n_shared_experts") * expert,
        dense_layers=read.count("first_k_dense_replace"),
    )


def _gemma(read: _Reader) -> Shape:
    return _without_bias(read, 256, tied=True)


def _gemma2(read: _Reader) -> Shape:
    return replace(_gemma(read), post_norm=True)


def _olmo2(read: _Reader) -> Shape:
    return replace(_without_bias(read), pre_norm=False, post_norm=True, whole_qk_norm=True)


def _gpt2(read: _Reader) -> Shape:
    hidden, heads = read.number("n_embd"), read.number("n_head")
    positions = read.number("n_positions")
    return Shape(
        layers=read.number("n_layer"),
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        ffn=read.number("n_inner", 4 * hidden),
        vocabulary=read.number("vocab_size"),
        sequence=positions,
        gated=False,
        bias=True,
        tied=read.flag("tie_word_embeddings", True),
        norm_bias=True,
        positions=positions,
    )


KINDS: Mapping[str, Callable[[_Reader], Shape]] = {
    "llama": _without_bias,
    "mistral": _llama,
    "mixtral": _mixtral,
    "qwen2": _qwen2,
    "gpt2": _gpt2,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "olmo2": _olmo2,
}
"""Readers by ``model_type``."""
