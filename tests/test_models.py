"""Model shapes: published parameter counts, the parts of new shapes, and config.json files."""

import json

import pytest
from test_meters_equal_closed_forms import check

from placement_proofs.cost import DEFAULT, communication, memory, sizes_of
from placement_proofs.derive import derive
from placement_proofs.derive.fit import check_fit
from placement_proofs.errors import IllFormed
from placement_proofs.expression import parse
from placement_proofs.models import Shape, transformer
from placement_proofs.plan import What
from placement_proofs.simulate import simulate
from placement_proofs.zoo import PRESETS, active, elements, load_model, named

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
    "llama3.2-1b": 1_235_814_400,
    "llama3.2-3b": 3_212_749_824,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v2": 235_741_434_880,
    "deepseek-v3": 671_026_404_352,
    "gemma-2b": 2_506_172_416,
    "gemma-7b": 8_537_680_896,
    "gemma2-2b": 2_614_341_888,
    "gemma2-9b": 9_241_705_984,
    "gemma2-27b": 27_227_128_320,
    "olmo2-7b": 7_298_617_344,
    "olmo2-13b": 13_716_198_400,
}
"""Parameters of the published checkpoints; a head that is tied counts once (some files store it
twice). DeepSeek-V3 has 58 * 256 correction biases of routers beside them."""

ACTIVE = {
    "mixtral-8x7b": (12.9, 0),
    "mixtral-8x22b": (39, 0),
    "qwen3-30b-a3b": (3.3, 0),
    "qwen3-235b-a22b": (22, 0),
    "deepseek-v2-lite": (2.4, 1),
    "deepseek-v2": (21, 1),
    "deepseek-v3": (37, 1),
}
"""Billions that a token uses, as published, and whether the table of the embedding is left out."""

ROUNDED = {
    "gpt3-125m": 0.125,
    "gpt3-350m": 0.356,
    "gpt3-760m": 0.760,
    "gpt3-2.7b": 2.65,
    "gpt3-13b": 12.85,
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


@pytest.mark.parametrize("name", ACTIVE)
def test_published_active_parameters(name):
    """To 2.5 per cent: the publications round, or cut, to one or two digits."""
    billions, without_table = ACTIVE[name]
    model = named(name)
    table = model.dims["V"] * model.dims["h"] * without_table
    assert (active(model) - table) / 1e9 == pytest.approx(billions, rel=0.025)


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
        ("tensor(tp=2, sequence=True) * zero3(dp=2)", {"qk_norm": True, "kv_heads": 2}),
        ("tensor(tp=4, replicate_kv=True) * data(dp=2)", {"qk_norm": True, "kv_heads": 1}),
        ("ulysses(sp=2) * zero1(dp=2)", {"qk_norm": True, "post_norm": True}),
        ("tensor(tp=2) * data(dp=2)", {"whole_qk_norm": True, "pre_norm": False}),
    ],
)
def test_the_parts_of_a_shape_train_as_on_one_device(text, shape):
    model = transformer(Shape(**SMALL | shape))
    assert simulate(derive(parse(text), model), model).equal


LATENT = {"kv_rank": 3, "q_rank": 5, "nope_dim": 2, "rope_dim": 3, "value_dim": 4}
DEEPSEEK = LATENT | {
    "experts": 4,
    "top_k": 2,
    "expert_ffn": 6,
    "shared_ffn": 7,
    "dense_layers": 1,
    "sequence": 8,
}


@pytest.mark.parametrize("shape", [LATENT, LATENT | {"q_rank": 0}, DEEPSEEK], ids=range(3))
@pytest.mark.parametrize(
    "text",
    [
        "tensor(tp=2, sequence=True) * zero3(dp=2)",
        "tensor(tp=2) * pipeline(pp=2, microbatches=3) * recompute('full')",
        "context(cp=2) * zero1(dp=2) * recompute('selective')",
        "ulysses(sp=2) * tensor(tp=2)",
        "fsdp(dp=3)",
    ],
)
def test_latent_attention_and_dense_first_layers(text, shape):
    """Trained as on one device, bytes as the closed forms say."""
    check(text, transformer(Shape(**SMALL | shape)))


def test_folded_layers_of_two_kinds_cost_what_single_layers_do():
    shape = Shape(**SMALL | DEEPSEEK | {"layers": 5, "dense_layers": 2})
    for text in ("tensor(tp=2, sequence=True) * zero3(dp=2)", "expert(ep=2) * recompute('full')"):
        found = []
        for folded in (True, False):
            model = transformer(shape, folded=folded)
            plan = derive(parse(text), model)
            sizes = sizes_of(plan, model)
            held, sent = memory(plan, sizes, DEFAULT), communication(plan, sizes, DEFAULT)
            found.append((held.by, held.saved, held.peak, held.transient, sent.by))
        assert found[0] == found[1]


@pytest.mark.parametrize(("depth", "layers"), [("p", [4, 2]), (2, [3, 3])])
def test_stages_of_layers_of_two_kinds(depth, layers):
    """A symbolic number of stages: dense layers beside the first's share; a known one: in order."""
    shape = Shape(**SMALL | DEEPSEEK | {"layers": 6, "dense_layers": 2})
    model = transformer(shape, folded=True)
    plan = derive(parse(f"pipeline(pp={depth}, microbatches=4)"), model)
    sizes = sizes_of(plan, model, axes={"pp": 2})
    check_fit(plan, model, sizes)
    norms = [
        sum(sizes.dim(t.times) for t in stage.tensors if t.name.endswith("norm1.weight"))
        for stage in (plan.stages[0], plan.stages[-1])
    ]
    assert norms == layers
    ends = [memory(plan, sizes, DEFAULT, plan.positions[i].name).by["parameters"] for i in (0, -1)]
    one = derive(parse("single()"), model)
    assert sum(ends) == memory(one, sizes_of(one, model), DEFAULT).by["parameters"]


def test_deepseek_on_any_number_of_stages():
    """61 layers, 3 of them dense, on 16 positions: 3 or 4 layers each, nothing lost."""
    model = named("deepseek-v3")
    plan = derive(parse("expert(ep=8) * pipeline(pp=16, microbatches=32)"), model)
    check_fit(plan, model, sizes_of(plan, model))
    tensors = [t for stage in plan.stages for t in stage.tensors]
    own = {t.name for t in tensors}
    assert len(own) == len(tensors) and sum("norm1" in name for name in own) == 61


def test_what_tensor_parallelism_sends_for_latent_attention():
    """Forward one all-reduce; backward those of both latent vectors and the rotary key's."""
    model = transformer(Shape(**SMALL | LATENT | {"layers": 1}))
    plan = derive(parse("tensor(tp=2, vocabulary=False)"), model)
    moved = [
        (i.out, i.shape[-1])
        for t in plan.transfers()
        if t.where.block == "layer0"
        for i in t.items
        if i.what in (What.ACTIVATION, What.COTANGENT)
    ]
    assert sorted(width for _, width in moved) == sorted(["h", "h", "h", "rq", "rkv", "dr"])


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


QWEN3 = {
    "model_type": "qwen3",
    "attention_bias": False,
    "head_dim": 128,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "max_position_embeddings": 40960,
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 8,
    "tie_word_embeddings": True,
    "vocab_size": 151936,
}
DEEPSEEK_V2 = {
    "model_type": "deepseek_v2",
    "attention_bias": False,
    "first_k_dense_replace": 1,
    "hidden_size": 2048,
    "intermediate_size": 10944,
    "kv_lora_rank": 512,
    "max_position_embeddings": 163840,
    "moe_intermediate_size": 1408,
    "moe_layer_freq": 1,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_attention_heads": 16,
    "num_experts_per_tok": 6,
    "num_hidden_layers": 27,
    "num_key_value_heads": 16,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "tie_word_embeddings": False,
    "v_head_dim": 128,
    "vocab_size": 102400,
}
DEEPSEEK_V3 = DEEPSEEK_V2 | {
    "model_type": "deepseek_v3",
    "first_k_dense_replace": 3,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_attention_heads": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "vocab_size": 129280,
}
CONFIGS |= {
    "qwen3-0.6b": QWEN3,
    "qwen3-30b-a3b": QWEN3
    | {
        "model_type": "qwen3_moe",
        "decoder_sparse_step": 1,
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "mlp_only_layers": [],
        "moe_intermediate_size": 768,
        "num_attention_heads": 32,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 48,
        "num_key_value_heads": 4,
        "tie_word_embeddings": False,
    },
    "deepseek-v2-lite": DEEPSEEK_V2,
    "deepseek-v3": DEEPSEEK_V3,
    "gemma-2b": LLAMA
    | {
        "model_type": "gemma",
        "hidden_size": 2048,
        "intermediate_size": 16384,
        "num_attention_heads": 8,
        "num_hidden_layers": 18,
        "num_key_value_heads": 1,
        "vocab_size": 256000,
    },
    "gemma2-9b": LLAMA
    | {
        "model_type": "gemma2",
        "hidden_size": 3584,
        "intermediate_size": 14336,
        "num_attention_heads": 16,
        "num_hidden_layers": 42,
        "num_key_value_heads": 8,
        "vocab_size": 256000,
    },
    "olmo2-7b": LLAMA | {"model_type": "olmo2", "vocab_size": 100352},
}


@pytest.mark.parametrize(
    ("table", "key"),
    [
        (QWEN3 | {"attention_bias": True}, "attention_bias"),
        (CONFIGS["qwen3-30b-a3b"] | {"mlp_only_layers": [0]}, "mlp_only_layers"),
        (CONFIGS["qwen3-30b-a3b"] | {"decoder_sparse_step": 2}, "decoder_sparse_step"),
        (DEEPSEEK_V2 | {"moe_layer_freq": 2}, "moe_layer_freq"),
        (DEEPSEEK_V2 | {"kv_lora_rank": None}, "kv_lora_rank"),
        (DEEPSEEK_V2 | {"q_lora_rank": "many"}, "q_lora_rank"),
    ],
)
def test_what_no_shape_says_is_refused_by_its_key(tmp_path, table, key):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(table))
    with pytest.raises(IllFormed, match=key):
        load_model(str(path))


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
    for text in (
        "experts = 2\ntop_k = 3",
        "sequence = 8\npositions = 4",
        "dense_layers = 1",
        "experts = 2\nlayers = 2\ndense_layers = 2",
        "kv_rank = 4",
        "q_rank = 4",
        "nope_dim = 4",
        "kv_rank = 4\nnope_dim = 2\nrope_dim = 2\nvalue_dim = 2\nqkv_bias = true",
        "qk_norm = true\nwhole_qk_norm = true",
    ):
        path.write_text(text)
        with pytest.raises(IllFormed, match=r"wrong\.toml"):
            load_model(str(path))
