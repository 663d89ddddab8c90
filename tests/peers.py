"""What other estimators answer, each beside what we count under its convention.

Their answers are in the shared folder; a comparison pairs each of them with our number.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from placement_proofs.cost import communication, convention, memory, sizes_of
from placement_proofs.derive import derive
from placement_proofs.expression import parse
from placement_proofs.models import abstract, transformer
from placement_proofs.profile import PROFILES
from placement_proofs.zoo import PRESETS

TOLERANCE = 0.005
ZERO = ("data", "zero1", "zero2", "zero3")
GPT = {"22B": "megatron-22b", "175B": "megatron-175b", "530B": "megatron-530b", "1T": "megatron-1t"}
UNITS = {"TB": 2**40, "GB": 2**30, "MB": 2**20, "KB": 2**10, "B": 1}


@dataclass(frozen=True)
class Pair:
    """A number of ours and one of theirs (bytes)."""

    ours: float
    theirs: float

    @property
    def close(self):
        """Whether they differ by less than half a per cent."""
        return abs(self.ours / self.theirs - 1) < TOLERANCE


def hits(pairs):
    """How many pairs are close, and how many there are."""
    found = list(pairs)
    return sum(pair.close for pair in found), len(found)


def amount(text):
    """Bytes of a text of SimuMax, whose GB are GiB."""
    number, unit = text.split()
    return float(number) * UNITS[unit]


# our side


@cache
def plan_of(text, shape, profile):
    model = transformer(shape, folded=True)
    plan = derive(parse(text), model, PROFILES[profile])
    return plan, sizes_of(plan, model)


@cache
def held(text, shape, widths, profile="paper"):
    """Memory of the first pipeline position."""
    plan, sizes = plan_of(text, shape, profile)
    return memory(plan, sizes, convention(widths), plan.positions[0].name)


@cache
def sent(text, shape, widths, profile="paper"):
    """Traffic of the first pipeline position."""
    plan, sizes = plan_of(text, shape, profile)
    return communication(plan, sizes, convention(widths), plan.positions[0].name)


@cache
def bare(text, psi, widths):
    """Bytes of the states of a model of so many parameters."""
    model = abstract(psi)
    plan = derive(parse(text), model)
    return memory(plan, sizes_of(plan, model), convention(widths)).persistent


def composed(case, *, recompute=None, sequence=None):
    """The expression of a case."""
    recompute = case["recompute"] if recompute is None else recompute
    sequence = case["sp"] if sequence is None else sequence
    parts = [f"zero1(dp={case['dp']})" if case["distopt"] else f"data(dp={case['dp']})"]
    if case["tp"] > 1:
        parts.append(f"tensor(tp={case['tp']}{', sequence=True' if sequence else ''})")
    if case["pp"] > 1:
        micro = case["gbs"] // case["dp"] // case["mb"]
        parts.append(f"pipeline(pp={case['pp']}, microbatches={micro})")
    if recompute != "none":
        parts.append(f"recompute('{recompute}')")
    return " * ".join(parts)


def states_of(case):
    return composed(case, recompute="none", sequence=False)


def shape_of(case):
    return replace(PRESETS[case["model"]], sequence=case["seq"], micro_batch=case["mb"])


def as_gpt(shape, ffn=None):
    """The layer of arXiv 2205.05198 with the sizes of another one."""
    return replace(
        shape,
        gated=False,
        dropout=True,
        fused_attention=False,
        kv_heads=shape.heads,
        ffn=ffn or 4 * shape.hidden,
    )


def layer(text, shape, profile="paper"):
    """Bytes that one layer keeps for the backward pass, of one micro-batch."""
    kept = [t for t in held(text, shape, "zero-paper", profile).terms if t.block == "layers"]
    return kept[0].payload


def profile_of(case):
    return "megatron" if case["sp"] else "paper"


# states


def zero_paper(data) -> Iterator[Pair]:
    wanted = data["case1_zero_7p5B"]["reference_ZeRO_paper_GB"]
    for name, key in zip(ZERO, ("DP", "Z1", "Z2", "Z3"), strict=True):
        ours = bare(f"{name}(dp=64)", 7_500_000_000, "zero-paper") / 1e9
        yield Pair(round(ours, 1), wanted[key])


def zero_table(peer, widths, theirs, psi=7_500_000_000):
    """Data parallelism and ZeRO 1-3 of one number of parameters."""

    def pairs(data):
        for row in data["case1_zero_7p5B"][peer]:
            if (found := theirs(row)) is not None:
                stage, value = found
                yield Pair(bare(f"{ZERO[stage]}(dp=64)", psi, widths), value)

    return pairs


def primus_zero(row):
    return int(row["distopt"]), row["bytes_per_param"] * 7.5e9


def deepspeed_states(data) -> Iterator[Pair]:
    for row in data["case2_llama"]["DeepSpeed"]:
        text = f"zero{row['zero']}(dp=64)"
        ours = held(text, PRESETS[row["model"]], f"deepspeed-zero{row['zero']}").persistent
        yield Pair(ours, row["gpu"])


def ultrascale_states(data) -> Iterator[Pair]:
    for row in data["case2_llama"]["Ultra-Scale_states"]:
        llama = PRESETS[row["model"]]
        gpt = replace(as_gpt(llama), dropout=False, bias=True, norm_bias=True, tied=True)
        gpt = replace(gpt, positions=2048)
        ours = held(f"{ZERO[row['zero']]}(dp={row['dp']})", gpt, "zero-paper").persistent
        yield Pair(ours, row["param"] + row["grad"] + row["opt"])


def galvatron_states(data) -> Iterator[Pair]:
    for row in data["case2_llama"]["Galvatron_llama2-7b_seq2048"]:
        case = row | {"model": "llama2-7b", "seq": 2048, "gbs": 2048, "distopt": False}
        name = {"DDP": "data", "ZERO2": "zero2", "ZERO3": "zero3"}[row["dp_type"]]
        text = states_of(case).replace("data", name)
        ours = held(text, PRESETS["llama2-7b"], "blocks-only").persistent
        yield Pair(ours, row["stage_states_GB"] * 2**30)


def llama(peer, widths, theirs):
    """States on the first stage of the LLaMA cases."""

    def pairs(data):
        for row in data["case2_llama"][peer]:
            case = row["case"]
            ours = held(states_of(case), PRESETS[case["model"]], widths).persistent
            yield Pair(ours, theirs(row))

    return pairs


def first_stage(row):
    return row.get("single") or row.get("first_stage") or row.get("first")


def calculon_states(data) -> Iterator[Pair]:
    for row in data["case2_llama"]["calculon"]:
        case = row["case"]
        text = states_of(case).replace("zero1", "zero2")
        base = PRESETS[case["model"]]
        shape = replace(base, gated=False, kv_heads=base.heads, ffn=base.ffn * 3 // 2)
        ours = held(text, shape, "blocks-only").persistent
        spaces = ("weight_space", "weight_grad_space", "optimizer_space")
        yield Pair(ours, sum(row[s] for s in spaces))


def cookbook_weights(data) -> Iterator[Pair]:
    """Two decimals of GiB are printed: ours is rounded alike."""
    for row in data["case2_llama"]["cookbook"]:
        case = row["case"]
        ours = held(states_of(case), PRESETS[case["model"]], "mlsysim").by["parameters"]
        yield Pair(round(float(ours) / 2**30, 2), row["weight"])


# activations


def korthikanti(data) -> Iterator[Pair]:
    """The formulas of arXiv 2205.05198, one layer of each model and variant."""
    settings = {
        "none_noSP": ("", "paper"),
        "none_SP": (", sequence=True", "megatron"),
        "sel_noSP": (") * recompute('selective'", "paper"),
        "sel_SP": (", sequence=True) * recompute('selective'", "megatron"),
        "full_noSP": (") * recompute('full'", "paper"),
        "full_SP": (", sequence=True) * recompute('full'", "megatron"),
    }
    for row in data["case3_korthikanti"]["reference_formula"]:
        shape = replace(PRESETS[GPT[row["model"]]], dropout=True, micro_batch=row["mb"])
        for key, (options, profile) in settings.items():
            ours = layer(f"tensor(tp=8{options})", shape, profile)
            yield Pair(ours, row["per_layer_bytes"][key])


def ultrascale_layers(data) -> Iterator[Pair]:
    for row in data["case3_korthikanti"]["Ultra-Scale"]:
        case = {"dp": 1, "distopt": False, "tp": 8, "pp": 1, **row}
        batch = 4 if row["model"] == "22B" else 1
        shape = replace(PRESETS[GPT[row["model"]]], dropout=True, micro_batch=batch)
        ours = layer(composed(case), shape, profile_of(row)) * shape.layers
        yield Pair(ours, row["layers"])


def megatron_activations(data) -> Iterator[Pair]:
    for row in data["case2_llama"]["Megatron-LM"]:
        case = row["case"]
        shape = shape_of(case)
        if "fallback" in row["formula"]:
            text = composed(case, recompute="selective", sequence=False)
            ours = held(text, as_gpt(shape), "megatron-report").saved
        else:
            ours = held(composed(case), as_gpt(shape, shape.ffn), "megatron", "megatron").saved
        yield Pair(float(ours), row["act"])


def simumax_activations(data) -> Iterator[Pair]:
    """Kept of one micro-batch on the first stage."""
    for row in data["case2_llama"]["SimuMax"]:
        case = row["case"]
        widths = "simumax-sdp" if case["recompute"] == "selective" else "simumax"
        found = held(composed(case), shape_of(case), widths, profile_of(case))
        yield Pair(found.saved / found.in_flight, amount(first_stage(row)["act_per_mb"]))


def mbridge_activations(data) -> Iterator[Pair]:
    for row in data["case2_llama"]["mbridge"]:
        case = row["case"]
        ours = held(composed(case), shape_of(case), "simumax", profile_of(case)).saved
        yield Pair(ours, row["stages"][0]["activation_gb"] * 2**30)


def mbridge_explained(data) -> Iterator[Pair]:
    """Without recomputation, on whole or scattered sequences: what it counts beside.

    That is the embedding's whole output for each micro-batch in flight, or, where the first stage
    is the last one, a second copy of the logits.
    """
    for row in data["case2_llama"]["mbridge"]:
        case = row["case"]
        if case["recompute"] == "none" and (case["sp"] or case["tp"] == 1):
            shape = shape_of(case)
            found = held(composed(case), shape, "simumax", profile_of(case))
            wide = shape.hidden * found.in_flight if case["pp"] > 1 else shape.vocabulary
            more = 2 * case["seq"] * case["mb"] * wide
            yield Pair(found.saved + more, row["stages"][0]["activation_gb"] * 2**30)


def mlsysim_activations(data) -> Iterator[Pair]:
    for row in data["case2_llama"]["mlsysim"]:
        case = row["case"]
        found = held(composed(case), as_gpt(shape_of(case)), "mlsysim", profile_of(case))
        yield Pair(float(found.saved), row["act"])


def llm_analysis_activations(data) -> Iterator[Pair]:
    for row in data["case2_llama"]["llm-analysis"]:
        case = row["case"]
        found = held(composed(case), shape_of(case), "simumax", profile_of(case))
        yield Pair(float(found.saved), row["act"])


def calculon_activations(data) -> Iterator[Pair]:
    """Its own validation: GPT without sequence parallelism, first stage, in GiB."""
    found = data["case3_korthikanti"]["calculon_llm_validation"]
    factors = {r["model"]: r["interleave_factor"] for r in _references(data)}
    batches = {r["model"]: r["mb"] for r in _references(data)}
    for name, theirs in zip(found["order"], found["activations_none_GiB"]["calculon"], strict=True):
        shape = replace(PRESETS[GPT[name]], dropout=True, micro_batch=batches[name])
        ours = layer("tensor(tp=8)", shape) * shape.layers * factors[name]
        yield Pair(ours, theirs * 2**30)


def _references(data):
    return data["case3_korthikanti"]["reference_formula"]


# traffic


def simumax_traffic(data) -> Iterator[Pair]:
    """Payloads of the reduce-scatter of gradients and the all-gather of parameters."""
    for row in data["case2_llama"]["SimuMax"]:
        case = row["case"]
        if case["distopt"]:
            by = sent(states_of(case), PRESETS[case["model"]], "simumax").by
            yield Pair(by["reduce-scatter", ("dp",)], row["dp"]["dp_comm_rs_size"])
            yield Pair(by["all-gather", ("dp",)], row["dp"]["dp_comm_ag_size"])


def calculon_traffic(data) -> Iterator[Pair]:
    """Payloads of one layer and micro-batch over tp in the forward pass, and between stages."""
    for row in data["case2_llama"]["calculon"]:
        case = row["case"]
        base = PRESETS[case["model"]]
        shape = replace(shape_of(case), gated=False, kv_heads=base.heads, fused_attention=False)
        terms = sent(composed(case, recompute="none"), shape, "simumax", profile_of(case)).terms
        forward = [t for t in terms if t.phase == "forward"]
        wide = [t for t in forward if t.axes == ("tp",) and t.block == "layers"]
        if case["tp"] > 1:
            yield Pair(sum(t.payload for t in wide), row["baseblock_fw_tp_size"])
        stages = [t.payload for t in forward if t.what == "point-to-point"]
        if case["pp"] > 1:
            yield Pair(stages[0], row["block_fw_pp_size"])


COMPARISONS = {
    "zero-paper states": zero_paper,
    "mlsysim zero": zero_table("mlsysim", "zero-paper", lambda r: (r["zero"], r["states"])),
    "ultra-scale zero": zero_table(
        "Ultra-Scale", "zero-paper", lambda r: (r["zero"], r["total"]), 7_467_786_240
    ),
    "llm-analysis zero": zero_table(
        "llm-analysis", "fp32-gradients", lambda r: (r["stage"], r["scaled_to_7p5e9_GB"] * 1e9)
    ),
    "primus zero": zero_table("Primus", "primus", primus_zero),
    "megatron states": llama("Megatron-LM", "fp32-gradients", lambda r: r["weight_grad_opt"]),
    "mbridge states": llama(
        "mbridge", "fp32-gradients", lambda r: r["stages"][0]["weight_grad_optim_gb"] * 2**30
    ),
    "simumax states": llama(
        "SimuMax", "fp32-gradients", lambda r: amount(first_stage(r)["model_mem"])
    ),
    "llm-analysis states": llama(
        "llm-analysis", "llm-analysis", lambda r: r["weight"] + r["grad"] + r["opt"]
    ),
    "mlsysim states": llama("mlsysim", "mlsysim", lambda r: r["weight"] + r["grad"] + r["opt"]),
    "primus states": llama("Primus", "primus", lambda r: r["first"]["param_opt"]),
    "calculon states": calculon_states,
    "cookbook weights": cookbook_weights,
    "ultra-scale states": ultrascale_states,
    "galvatron states": galvatron_states,
    "deepspeed states": deepspeed_states,
    "korthikanti layers": korthikanti,
    "ultra-scale layers": ultrascale_layers,
    "megatron activations": megatron_activations,
    "simumax activations": simumax_activations,
    "mbridge activations": mbridge_activations,
    "mbridge explained": mbridge_explained,
    "mlsysim activations": mlsysim_activations,
    "llm-analysis activations": llm_analysis_activations,
    "calculon activations": calculon_activations,
    "simumax traffic": simumax_traffic,
    "calculon traffic": calculon_traffic,
}
"""Every comparison by name; each gives pairs from the shared data."""
