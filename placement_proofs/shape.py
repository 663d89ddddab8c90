"""The shape of a decoder-only transformer: its sizes, and what its layers are made of."""

from __future__ import annotations

from dataclasses import dataclass

from placement_proofs.mesh import Dim


@dataclass(frozen=True)
class Shape:
    """The shape of a decoder-only transformer (elements).

    ``experts`` is 0 for a dense model; ``kv_heads`` below ``heads`` is grouped-query attention.
    With ``fused_attention`` (arXiv 2205.14135) no scores are kept for the backward pass.
    ``bias`` is of all projections of a layer, ``qkv_bias`` of queries, keys and values alone.
    ``head_dim`` is the size of a head where it is not ``hidden / heads``. Each token goes to
    ``top_k`` of the experts and, with ``shared_ffn`` > 0, to a shared expert of that width.
    ``positions`` is the number of rows of a learned table of positions, 0 for none. ``dropout`` is
    that of GPT: after the embedding, of attention weights, before each residual sum.

    ``qk_norm`` normalises each head of queries and keys (Qwen3), ``whole_qk_norm`` all heads as one
    (OLMo 2). Norms come before attention and feed-forward part, with ``post_norm`` also after, and
    without ``pre_norm`` only after. The first ``dense_layers`` layers of a model with experts have
    none, and the width ``ffn``; experts have ``expert_ffn`` where it is not the same.

    ``kv_rank`` > 0 is multi-head latent attention (arXiv 2405.04434, section 2.1): keys and values
    come from a latent vector of that width, queries from one of ``q_rank`` if it is not 0. A head
    has ``nope_dim`` elements of queries and keys, ``rope_dim`` with rotary positions, whose key
    all heads share, and ``value_dim`` of values.
    """

    layers: int = 2
    hidden: int = 8
    heads: int = 4
    kv_heads: int = 4
    ffn: int = 16
    vocabulary: int = 16
    sequence: int = 4
    gated: bool = True
    bias: bool = False
    tied: bool = False
    experts: int = 0
    fused_attention: bool = False
    micro_batch: int = 1
    head_dim: int = 0
    qkv_bias: bool = False
    norm_bias: bool = False
    positions: int = 0
    top_k: int = 1
    shared_ffn: int = 0
    dropout: bool = False
    qk_norm: bool = False
    whole_qk_norm: bool = False
    pre_norm: bool = True
    post_norm: bool = False
    dense_layers: int = 0
    expert_ffn: int = 0
    kv_rank: int = 0
    q_rank: int = 0
    nope_dim: int = 0
    rope_dim: int = 0
    value_dim: int = 0

    @property
    def query(self) -> Dim:
        """The width of all query heads: the hidden size, or a size of its own."""
        if self.kv_rank:
            return "hq"
        own = self.head_dim and self.head_dim * self.heads != self.hidden
        return "ha" if own else "h"

    @property
    def expert_width(self) -> Dim:
        """The width of an expert."""
        return "fe" if self.expert_ffn else "f"

    @property
    def head_size(self) -> int:
        """Elements of a head of queries."""
        return self.head_dim or self.hidden // self.heads

    @property
    def dims(self) -> dict[str, int]:
        """The symbols of the shape (elements or counts)."""
        named = {
            "h": self.hidden,
            "f": self.ffn,
            "V": self.vocabulary,
            "s": self.sequence,
            "L": self.layers,
            "a": self.heads,
        }
        more = {
            "E": self.experts,
            "k": self.top_k if self.experts and self.top_k > 1 else 0,
            "fs": self.shared_ffn if self.experts else 0,
            "fe": self.expert_ffn if self.experts else 0,
            "T": self.positions,
            "Ld": self.dense_layers if self.experts else 0,
            "Lm": self.layers - self.dense_layers if self.experts and self.dense_layers else 0,
        }
        heads = self._latent() if self.kv_rank else self._heads()
        return named | {name: size for name, size in (more | heads).items() if size}

    def _heads(self) -> dict[str, int]:
        head = self.head_size
        return {
            "akv": self.kv_heads,
            "hkv": self.kv_heads * head,
            "ha": self.heads * head if self.query == "ha" else 0,
            "d": head if self.qk_norm else 0,
        }

    def _latent(self) -> dict[str, int]:
        return {
            "rq": self.q_rank,
            "rkv": self.kv_rank,
            "dr": self.rope_dim,
            "hq": self.heads * (self.nope_dim + self.rope_dim),
            "hn": self.heads * self.nope_dim,
            "hv": self.heads * self.value_dim,
        }
