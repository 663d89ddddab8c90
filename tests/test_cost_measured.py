"""Traffic and memory against what real PyTorch steps were measured to do (the shared folder).

Where the measured stack differs from the paper's plan, the difference stands here with its reason.
"""

import json

import pytest
from measured import FLOAT32, model_of

from placement_proofs.cost import communication, memory, sizes_of
from placement_proofs.derive import derive
from placement_proofs.expression import parse

AXES = {"dp_rep": "dp_replicate"}


@pytest.fixture
def measured(shared):
    """The runs by case, model and number of ranks, and the shapes of the models."""
    data = json.loads((shared / "data" / "oracle_results.json").read_text())
    runs = {(c["case"], c["model"], c["world"]): c for c in data["cases"] if c.get("ops")}
    return runs, data["models"]


def costs(text, shape, data_ranks):
    model = model_of(shape, shape["batch"] // data_ranks)
    plan = derive(parse(text), model)
    sizes = sizes_of(plan, model)
    return memory(plan, sizes, FLOAT32), communication(plan, sizes, FLOAT32), model


def sent_by_torch(run):
    return {
        (o["op"].replace("_", "-"), (AXES.get(o["axis"], o["axis"]),)): o[
            "ring_bytes_sent_per_rank"
        ]
        for o in run["ops"]
    }


CASES = [
    ("ddp", "data(dp={n})", None),
    ("fsdp2_raf_true", "fsdp(dp={n})", "dp_shard"),
    ("fsdp2_raf_false", "fsdp(dp={n}, reshard_after_forward=False)", "dp_shard"),
    ("hsdp_raf_true", "hsdp(dp_replicate=2, dp_shard=2)", None),
    ("tp", "tensor(tp={n}, vocabulary=False)", None),
]


def renamed(sent, axis):
    """Our axis ``dp`` by the name that the run has for it."""
    return {(k, (axis,) if axis and a == ("dp",) else a): v for (k, a), v in sent.items()}


@pytest.mark.parametrize("name", ["tfm_div", "tfm_odd"])
@pytest.mark.parametrize(("case", "text", "axis"), CASES)
def test_ring_bytes_of_torch(measured, case, text, axis, name):
    runs, models = measured
    shape = models[name]["cfg"]
    ranks = 4
    held, sent, model = costs(text.format(n=ranks), shape, 1 if case == "tp" else ranks)
    run = runs[case, name, ranks]
    assert renamed(sent.by, axis) == sent_by_torch(run)
    elements = sum(_elements(t, model.dims) for t in model.tensors)
    assert elements == models[name]["n_params"]
    state = run["state_bytes"]
    # Of tensors whose dim 0 does not divide, both hold the padded part on the first rank.
    assert held.by == {
        "parameters": state["params"],
        "gradients": state["grads"],
        "optimizer": state["optim_moments"],
    }


def _elements(tensor, dims):
    count = 1
    for d in tensor.shape:
        count *= dims[d]
    return count


def test_zero1_of_torch_all_reduces_and_broadcasts(measured):
    """torch's ZeRO-1 moves 3P: another profile than the paper's 2P (reduce-scatter, all-gather)."""
    runs, models = measured
    _, sent, _ = costs("zero1(dp=4)", models["tfm_div"]["cfg"], 4)
    run = sent_by_torch(runs["zero1", "tfm_div", 4])
    assert sum(run.values()) * 2 == sent.total * 3


def test_sequence_parallelism_of_torch(measured):
    """The layers agree to the byte; three differences outside them have reasons.

    * torch gathers the sequence before the head and gathers the embedding's gradient (2 more
      all-gathers of one activation); here both work on the sharded sequence, and the gradients of
      their weights are all-reduced instead.
    * Adam on DTensors all-reduces each norm's gradient three times.
    * The bias after a row projection is added to the sharded stream here (as in Megatron), so its
      gradient is all-reduced; torch's comes back replicated.
    """
    runs, models = measured
    shape = models["tfm_div"]["cfg"]
    _, sent, model = costs("tensor(tp=4, sequence=True, vocabulary=False)", shape, 1)
    torch = sent_by_torch(runs["tp_sp", "tfm_div", 4])
    gathered, scattered, reduced = (
        (kind, ("tp",)) for kind in ("all-gather", "reduce-scatter", "all-reduce")
    )
    activation = shape["batch"] * shape["seq"] * shape["d"] * 4 * 3 / 4
    assert sent.by[scattered] == torch[scattered]
    assert sent.by[gathered] == torch[gathered] - 2 * activation
    one = shape["d"] * 4 * 2 * 3 / 4
    norms, row_biases = 2 * (2 * shape["layers"] + 1), shape["layers"]
    assert torch[reduced] == 3 * norms * one
    tables = 2 * shape["out"]
    assert sent.by[reduced] == (norms + row_biases + tables) * one
    by_hand = sent_by_torch(runs["manual_tp_sp", "tfm_div", 4])
    assert by_hand[reduced] == (norms + row_biases) * one
    assert len(model.tensors) == 28
