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

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.table.get(key, default)
        if not isinstance(value, bool):
            raise IllFormed(
                f"{self.place}: {key}", repr(value)[:60], "true or false", "write one of the two"
            )
        return value


def _llama(read: _Reader) -> Shape:
    heads = read.number("num_attention_heads")
    hidden = read.number("hidden_size")
    if read.table.get("mlp_bias"):
        raise IllFormed(
            f"{read.place}: mlp_bias", "true", "these shapes have no such bias", "use a TOML file"
        )
    return Shape(
        layers=read.number("num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=read.number("num_key_value_heads", heads),
        ffn=read.number("intermediate_size"),
        vocabulary=read.number("vocab_size"),
        sequence=read.number("max_position_embeddings"),
        tied=read.flag("tie_word_embeddings"),
        fused_attention=True,
        head_dim=read.number("head_dim", max(1, hidden // heads)),
    )


def _plain_llama(read: _Reader) -> Shape:
    if read.table.get("attention_bias"):
        raise IllFormed(
            f"{read.place}: attention_bias",
            "true",
            "these shapes have no bias of the output projection alone",
            "use a TOML file",
        )
    return _llama(read)


def _mixtral(read: _Reader) -> Shape:
    experts = read.number("num_local_experts")
    return replace(_llama(read), experts=experts, top_k=read.number("num_experts_per_tok", 2))


def _qwen2(read: _Reader) -> Shape:
    return replace(_llama(read), qkv_bias=True)


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
    "llama": _plain_llama,
    "mistral": _llama,
    "mixtral": _mixtral,
    "qwen2": _qwen2,
    "gpt2": _gpt2,
}
"""Readers by ``model_type``."""
