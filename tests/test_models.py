"""Model shapes: published parameter counts, the parts of new shapes, and config.json files."""

import json
import math

import pytest

from placement_proofs.derive import derive
from placement_proofs.errors import IllFormed
from placement_proofs.expression import parse
from placement_proofs.mesh import IntSizes
from placement_proofs.models import Shape, transformer
from placement_proofs.simulate import simulate
from placement_proofs.zoo import PRESETS, load_model, named


def elements(model):
    """Parameters of a model, blocks counted as often as they repeat."""
    sizes = IntSizes({}, model.dims)
    times = {b.name: sizes.dim(b.times) for b in model.blocks}
    users = {p: times[op.block] for op in model.ops for p in op.params}
    return sum(math.prod(sizes.dim(d) for d in t.shape) * users[t.name] for t in model.tensors)


EXACT = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "llama-7b": 6_738_415_616,
    "llama-13b": 13_015_864_320,
    "llama-30b": 32_528_943_616,
    "llama-65b": 65_285_660_672,
    "llama2-7b": 6_738_415_616,
    "llama2-13b": 13_015_864_320,
    "llama2-70b": 68_976_648_192,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3-405b": 405_853_388_800,
    "tinyllama-1.1b": 1_100_048_384,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_630_071_296,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
}
"""Parameters of the published checkpoints."""

ROUNDED = {
    "gpt3-6.7b": 6.658,
    "gpt3-175b": 174.6,
    "megatron-22b": 22,
    "megatron-175b": 175,
    "megatron-530b": 530,
    "megatron-1t": 1008,
}
"""Billions: arXiv 2005.14165, table D.1, and 2205.05198, table 3 (1T there is 1,008e9)."""


@pytest.mark.parametrize("name", EXACT)
def test_published_parameter_counts(name):
    assert elements(named(name)) == EXACT[name]


@pytest.mark.parametrize("name", ROUNDED)
def test_rounded_parameter_counts(name):
    digits = len(str(ROUNDED[name]).partition(".")[2])
    assert round(elements(named(name)) / 1e9, digits) == ROUNDED[name]


def test_every_preset_is_checked():
    assert set(PRESETS) == {*EXACT, *ROUNDED, "dense", "moe", "tiny"}


SMALL = {"layers": 2, "hidden": 8, "heads": 4, "kv_heads": 4, "ffn": 16, "vocabulary": 16}


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("expert(ep=2) * zero1(dp=2) * tensor(tp=2)", {"experts": 2, "top_k": 2, "shared_ffn": 8}),
        ("expert(ep=2) * zero3(dp=2)", {"experts": 4, "top_k": 2, "sequence": 8}),
        ("context(cp=2) * data(dp=2)", {"experts": 4, "top_k": 3, "sequence": 8, "shared_ffn": 6}),
        (
            "tensor(tp=2, sequence=True) * zero3(dp=2)",
            {"positions": 4, "norm_bias": True, "bias": True, "gated": False, "tied": True},
        ),
        (
            "tensor(tp=2) * pipeline(pp=2, microbatches=2)",
            {"kv_heads": 2, "positions": 6, "head_dim": 4, "qkv_bias": True},
        ),
    ],
)
def test_the_parts_of_a_shape_train_as_on_one_device(text, shape):
    model = transformer(Shape(**SMALL | shape))
    assert simulate(derive(parse(text), model), model).equal


def test_tokens_are_dispatched_to_as_many_experts_as_chosen():
    one, two = (transformer(Shape(**SMALL, experts=2, top_k=k)) for k in (1, 2))
    assert [m.value("layer0.tokens").shape[2] for m in (one, two)] == ["s/E", "s*k/E"]
    assert two.dims["k"] == 2


LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 32000,
    "max_position_embeddings": 2048,
}
CONFIGS = {
    "llama-7b": LLAMA,
    "llama3-8b": LLAMA
    | {"num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256},
    "mistral-7b": LLAMA
    | {"model_type": "mistral", "num_key_value_heads": 8, "intermediate_size": 14336},
    "mixtral-8x7b": LLAMA
    | {
        "model_type": "mixtral",
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    },
    "qwen2.5-0.5b": {
        "model_type": "qwen2",
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "vocab_size": 151936,
        "max_position_embeddings": 32768,
        "tie_word_embeddings": True,
    },
    "gpt2": {
        "model_type": "gpt2",
        "n_embd": 768,
        "n_head": 12,
        "n_layer": 12,
        "n_positions": 1024,
        "vocab_size": 50257,
    },
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_json_gives_the_published_count(tmp_path, name):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIGS[name]))
    model = load_model(str(path))
    assert (elements(model), model.name) == (EXACT[name], tmp_path.name)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_type": "mamba"}, "model types are llama, mistral"),
        ({"hidden_size": "wide"}, "hidden_size"),
        ({"vocab_size": None}, "vocab_size"),
        ({"tie_word_embeddings": 1}, "true or false"),
        ({"attention_bias": True}, "attention_bias"),
        ({"num_attention_heads": 24, "num_key_value_heads": 7}, "heads divide"),
    ],
)
def test_a_wrong_config_json_says_where(tmp_path, change, words):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA | change))
    with pytest.raises(IllFormed) as caught:
        load_model(str(path))
    assert words in str(caught.value)


def test_wrong_experts_and_positions_are_refused(tmp_path):
    path = tmp_path / "wrong.toml"
    for text in ("experts = 2\ntop_k = 3", "sequence = 8\npositions = 4"):
        path.write_text(text)
        with pytest.raises(IllFormed, match=r"wrong\.toml"):
            load_model(str(path))
