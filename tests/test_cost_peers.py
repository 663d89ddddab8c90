"""Model states of other estimators, reproduced under the convention that each of them has.

Their numbers are in the shared folder: 672 LLaMA cases each (32 layouts of states).
"""

import json
from functools import cache

import pytest

from placement_proofs.cost import convention, memory, sizes_of
from placement_proofs.derive import derive
from placement_proofs.expression import parse
from placement_proofs.models import abstract
from placement_proofs.zoo import named

MAIN = convention("fp32-gradients")
"""2 bytes of parameters, 4 of main gradients, 12 of optimizer: 18 per parameter."""


def peers(shared):
    return json.loads((shared / "data" / "peers_values.json").read_text())


@cache
def states(model, tp, pp, dp, sharded):
    """Bytes of the states on the first stage."""
    parts = [f"zero1(dp={dp})" if sharded else f"data(dp={dp})"]
    parts += [f"tensor(tp={tp})"] if tp > 1 else []
    parts += [f"pipeline(pp={pp}, microbatches={8 * pp})"] if pp > 1 else []
    shape = named(model)
    plan = derive(parse(" * ".join(parts)), shape)
    held = memory(plan, sizes_of(plan, shape), MAIN, plan.positions[0].name)
    return held.persistent


def megatron(row):
    return row["weight_grad_opt"]


def mbridge(row):
    return row["stages"][0]["weight_grad_optim_gb"] * 2**30


def simumax(row):
    first = row.get("single") or row.get("first_stage") or row.get("first")
    return amount(first["model_mem"])


def amount(text):
    number, unit = text.split()
    return float(number) * {"TB": 2**40, "GB": 2**30, "MB": 2**20, "KB": 2**10, "B": 1}[unit]


PEERS = {"Megatron-LM": megatron, "mbridge": mbridge, "SimuMax": simumax}


@pytest.mark.parametrize("peer", PEERS)
def test_model_states_to_half_a_per_cent(shared, peer):
    rows = peers(shared)["case2_llama"][peer]
    compared, worst = 0, 0.0
    for row in rows:
        case = row["case"]
        key = [case[k] for k in ("model", "tp", "pp", "dp", "distopt")]
        theirs = PEERS[peer](row)
        worst = max(worst, abs(states(*key) / theirs - 1))
        compared += 1
    assert compared == 672
    assert worst < 0.005, worst


def test_the_zero_paper_is_exact(shared):
    wanted = peers(shared)["case1_zero_7p5B"]["reference_ZeRO_paper_GB"]
    texts = ("data", "zero1", "zero2", "zero3")
    model = abstract(7_500_000_000)
    found = []
    for text in texts:
        plan = derive(parse(f"{text}(dp=64)"), model)
        held = memory(plan, sizes_of(plan, model), convention("zero-paper"))
        found.append(round(held.persistent / 1e9, 1))
    assert found == [round(wanted[k], 1) for k in ("DP", "Z1", "Z2", "Z3")]
