"""Topologies: names and files, routes of collectives over nodes, times by formula and by number."""

import json
import re
from math import prod

import pytest
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as st

from placement_proofs import check
from placement_proofs.cost import DEFAULT, communication, sizes_of
from placement_proofs.cost.closed_form import closed_forms
from placement_proofs.cost.time import traffic_time
from placement_proofs.cost.time_forms import sizes_at, time_forms
from placement_proofs.cost.topology import Link, Topology
from placement_proofs.derive import derive
from placement_proofs.errors import IllFormed
from placement_proofs.expression import parse
from placement_proofs.layout import Collective
from placement_proofs.mesh import IntSizes
from placement_proofs.topologies import TOPOLOGIES, from_table, topology
from placement_proofs.zoo import named

FAST, SLOW = Link("fast", 1.0, 1000.0), Link("slow", 100.0, 10.0)
NODES = Topology(8, FAST, SLOW)
MODEL = named("tiny")
LINK = {"latency": "1 us", "bandwidth": "100 GB/s"}
PLAIN = {"ranks_per_node": 8, "inside": LINK, "between": LINK}


def route(axes, sizes, kind=Collective.ALL_GATHER, on=NODES, names=None):
    return on.route(kind, axes, IntSizes(sizes, {}), names or tuple(sizes))


# routes


def test_a_ring_leaves_the_node_over_the_links_of_its_ranks_there():
    inside = route(("dp",), {"dp": 8})
    assert (inside.link, inside.bandwidth, inside.latency, inside.together) == ("fast", 1000, 1, 8)
    two = route(("dp",), {"dp": 16})
    assert (two.link, two.bandwidth, two.together) == ("slow", 80, 8)
    assert two.latency == pytest.approx((2 * 100 + 13 * 1) / 15)
    alone = route(("dp",), {"dp": 4, "tp": 8})
    assert (alone.bandwidth, alone.together, alone.latency) == (10, 1, 100)
    some = route(("dp",), {"dp": 8, "tp": 4})
    assert (some.bandwidth, some.together) == (20, 2)


def test_no_ring_is_faster_than_the_link_inside():
    wide = Topology(8, Link("fast", 1.0, 50.0), SLOW)
    assert route(("dp",), {"dp": 16}, on=wide).bandwidth == 50


def test_all_to_all_uses_the_link_of_each_rank():
    """12 of 15 parts leave the node of 4: bytes at 10 / (12/15); the rest is faster inside."""
    found = route(("ep",), {"ep": 16}, Collective.ALL_TO_ALL, on=Topology(4, FAST, SLOW))
    assert found.bandwidth == pytest.approx(10 * 15 / 12)
    slow = Topology(4, Link("fast", 1.0, 1.0), SLOW)
    found = route(("ep",), {"ep": 16}, Collective.ALL_TO_ALL, on=slow)
    assert found.bandwidth == pytest.approx(15 / 3)


def test_messages_and_the_host_wait_once():
    sizes = {"pp": 2, "tp": 8}
    assert route(("pp",), sizes, Collective.POINT_TO_POINT).bandwidth == 10
    assert route((), sizes, Collective.HOST, on=Topology(8, FAST, SLOW, host=FAST)).link == "fast"
    assert route((), sizes, Collective.HOST).link == "slow"


def test_axes_that_nodes_cut_unevenly_count_no_neighbours():
    assert route(("dp",), {"dp": 6}).together == 1
    assert route(("dp",), {"dp": 4, "tp": 3}).together == 1
    assert route(("tp",), {"dp": 4, "tp": 3}).link == "slow"


def test_the_ends_of_a_pipeline_are_together_where_all_of_it_is():
    assert route(("pp:tied",), {"pp": 4, "tp": 2}).link == "fast"
    assert route(("pp:tied",), {"pp": 8, "tp": 2}).together == 1


def counted(axes, sizes, node, order):
    """Ranks of the collective of rank 0 on each node, by listing them."""
    strides = {name: prod(sizes[a] for a in order[i + 1 :]) for i, name in enumerate(order)}
    ranks = [0]
    for axis in axes:
        ranks = [r + i * strides[axis] for r in ranks for i in range(sizes[axis])]
    nodes = [r // node for r in ranks]
    return {nodes.count(n) for n in nodes}


@given(
    st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=3),
    st.sampled_from([1, 2, 4, 8, 16]),
    st.data(),
)
def test_ranks_together_are_counted(extents, node, data):
    names = tuple("abc"[: len(extents)])
    sizes = dict(zip(names, extents, strict=True))
    axes = tuple(data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True)))
    order = data.draw(st.permutations(names))
    on = Topology(node, FAST, SLOW, order=tuple(order))
    found = route(axes, sizes, on=on).together
    assert counted(axes, sizes, node, order) == {found}


# times


TEXTS = [
    "data(dp=8)",
    "zero3(dp=4) * tensor(tp=2, sequence=True)",
    "zero1(dp=4) * tensor(tp=2) * pipeline(pp=2, microbatches=4)",
    "ulysses(sp=4) * zero1(dp=4)",
    "hsdp(dp_replicate=2, dp_shard=8) * context(cp=2)",
    "zero3(dp=16) * offload('optimizer')",
    "data(dp=1) * tensor(tp=4)",
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("name", ["dgx-a100", "aws-p4d"])
def test_formulas_have_the_numbers(text, name):
    """The formulas with the numbers of the links are the sums over the plan's transfers."""
    plan = derive(parse(text), MODEL)
    on = TOPOLOGIES[name].topology
    forms = closed_forms(plan, MODEL, divides=False)
    sizes = sizes_of(plan, MODEL)
    exact = traffic_time(plan, sizes, DEFAULT, on)
    found = time_forms(plan, MODEL, DEFAULT, forms.position, divides=False)
    values = forms.values({})
    assert sizes_at(plan, MODEL, values).axes == sizes.axes
    numbers = found.numbers({**values, **found.links(on, sizes, plan.mesh.names)})
    assert numbers["time_exposed_at_most"].seconds == pytest.approx(exact.total)
    assert numbers["time_exposed_at_least"].seconds == pytest.approx(exact.waiting)
    each = [n.seconds for k, n in numbers.items() if "exposed" not in k]
    assert sorted(s for s in each if s) == pytest.approx(sorted(x.seconds for x in exact.lines))
    sent = communication(plan, sizes, DEFAULT)
    assert sum(x.bytes for x in exact.lines) == pytest.approx(float(sent.total + sent.host))
    assert all(0 <= x.latency <= x.seconds for x in exact.lines)


def test_the_classic_ring_formula():
    """An all-reduce of n bytes: 2 (N - 1) (alpha + n / (N beta)) (arXiv 1810.11112)."""
    model = named("abstract")
    plan = derive(parse("data(dp=N)"), model)
    found = time_forms(plan, model, DEFAULT, plan.positions[0].name)
    values = {"N": 8, "Psi": 1000, "alpha_dp": 3.0, "beta_dp": 10.0}
    expected = 2 * 7 * (3.0 + 2000 / (8 * 10.0))
    assert found.numbers(values)["time_exposed_at_most"].seconds == pytest.approx(expected)


# files


def test_the_example_is_the_schema():
    described = topology(str(ROOT / "examples" / "topology.toml"))
    assert described.name == "four-to-a-node"
    assert described.topology.node == 4
    assert described.topology.inside.bandwidth == 300e9
    assert described.topology.between.bandwidth == 6.25e9
    assert described.topology.inside.latency == 3.4e-6
    assert described.topology.order == ("dp", "tp")
    json.dumps(described.to_json())


@pytest.mark.parametrize(
    ("text", "expected"),
    [("25 GB/s", 25e9), ("200 Gbit/s", 25e9), ("200 Gb/s", 25e9), ("1 GiB/s", 2**30), (7e9, 7e9)],
)
def test_units_of_bandwidths(text, expected):
    found = from_table({**PLAIN, "inside": {"latency": 0, "bandwidth": text}}, "t")
    assert found.topology.inside.bandwidth == expected


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"nodes": 3}, "t: nodes"),
        ({"ranks_per_node": 0}, "t: ranks_per_node"),
        ({"ranks_per_node": True}, "t: ranks_per_node"),
        ({"inside": 3}, "t: inside"),
        ({"inside": {"latency": 1e-6}}, "t: inside"),
        ({"inside": {**LINK, "bandwidth": 300}}, "t: inside.bandwidth"),
        ({"inside": {**LINK, "bandwidth": "300 GBps"}}, "t: inside.bandwidth"),
        ({"inside": {**LINK, "bandwidth": float("nan")}}, "t: inside.bandwidth"),
        ({"between": {**LINK, "latency": 5}}, "t: between.latency"),
        ({"between": {**LINK, "latency": "-1 us"}}, "t: between.latency"),
        ({"between": {**LINK, "speed": 5}}, "t: between: speed"),
        ({"order": ["dp", "dp"]}, "t: order"),
        ({"order": "dp"}, "t: order"),
        ({"axes": {"tp": "nvlink"}}, "t: axes.tp"),
        ({"axes": 3}, "t: axes"),
    ],
)
def test_what_is_no_topology(change, place):
    with pytest.raises(IllFormed) as error:
        from_table({**PLAIN, **change}, "t")
    assert error.value.place == place
    assert error.value.remedy


@pytest.mark.parametrize("key", ["ranks_per_node", "inside", "between"])
def test_what_a_topology_needs(key):
    with pytest.raises(IllFormed, match=f"no {key}.*write {key}"):
        from_table({k: v for k, v in PLAIN.items() if k != key}, "t")


def test_an_axis_may_have_its_own_link():
    own = from_table({**PLAIN, "axes": {"ep": "inside", "cp": LINK}}, "t").topology
    assert set(own.links) == {"ep", "cp"}
    assert own.links["ep"] == own.inside


def test_paths_that_are_none(tmp_path):
    for text in ("a100", str(tmp_path), ""):
        with pytest.raises(IllFormed, match="named topologies are dgx-a100"):
            topology(text)
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("inside = {")
    with pytest.raises(IllFormed, match="TOML"):
        topology(str(wrong))


def test_names_and_figures_are_sensible():
    for name, described in TOPOLOGIES.items():
        on = described.topology
        assert described.name == name
        assert described.source
        assert on.inside.bandwidth > on.between.bandwidth
        assert on.inside.latency < on.between.latency


def table():
    """The named topologies as rows of Markdown."""
    lines = ["| name | ranks a node | inside | between, of a rank | host | figures of |"]
    lines.append("|---|---|---|---|---|---|")
    for name, d in TOPOLOGIES.items():
        on = d.topology
        links = " | ".join(
            f"{link.name}, {link.bandwidth / 1e9:g} GB/s, {link.latency * 1e6:g} us"
            for link in (on.inside, on.between, on.host)
        )
        lines.append(f"| `{name}` | {on.node} | {links} | {d.source} |")
    return "\n".join(lines)


def test_the_page_has_the_named_topologies():
    page = (ROOT / "docs" / "topologies.md").read_text()
    assert table() in page, "write the table of this test into docs/topologies.md"
    for key in ("ranks_per_node", "inside", "between", "host", "order", "axes.NAME"):
        assert f"`{key}`" in page
    for command in re.findall(r"placement-proofs (.+)", page):
        assert command.split()[0] in ("check", "formula", "compare")


# commands


def test_check_gives_times(run):
    found = run("check", "zero3(dp=16) * tensor(tp=4)", "--topology", "dgx-a100")
    assert found.code == 0
    assert "time of that traffic on dgx-a100" in found.out
    assert "exposed, at least" in found.out and "exposed, at most" in found.out
    assert "ranks numbered by dp, tp, the last fastest" in found.out
    data = run("check", "zero3(dp=16) * tensor(tp=4)", "--topology", "dgx-a100", "--json")
    time = json.loads(data.out)["time"]
    assert 0 < time["exposed_at_least"] < time["exposed_at_most"]
    assert {"collective", "axes", "phase", "link", "seconds"} <= set(time["lines"][0])
    assert check("zero3(dp=8)", topology="dgx-h100").time["topology"]["name"] == "dgx-h100"
    assert check("zero3(dp=8)").time is None


def test_formula_gives_times(run):
    symbolic = run("formula", "zero3(dp=N)", "--model", "abstract", "--of", "time")
    assert "exposed at most = 3*alpha_dp*(N - 1) + 6*Psi*(N - 1)/(N*beta_dp)" in symbolic.out
    text = ("formula", "zero3(dp=N)", "--model", "abstract", "--topology", "dgx-a100")
    open_ = run(*text, "--of", "time")
    assert "no numbers: axis dp is the symbol N" in open_.out
    with_numbers = run(*text, "--set", "N=64", "--json")
    data = json.loads(with_numbers.out)
    assert data["links"] == {"alpha_dp": pytest.approx(4.746e-6, rel=1e-3), "beta_dp": 200e9}
    assert data["numbers"]["time_exposed_at_most"]["seconds"] == pytest.approx(0.2224, rel=1e-3)
    csv = run(*text, "--set", "N=64", "--of", "time", "--format", "csv")
    assert csv.out.startswith("name,exact,asymptotic,number,unit\ntime_all_gather_over_dp_forward,")
    latex = run(*text, "--of", "time", "--format", "latex")
    assert r"\frac{2 \Psi \left(N - 1\right)}{N \beta_{dp}}" in latex.out
    source = run(*text, "--of", "time", "--format", "python")
    assert "alpha_dp: float" in source.out
    refused = run(*text, "--fits", "80GB")
    assert (refused.code, "--topology" in refused.err) == (2, True)


def test_compare_gives_times(run):
    texts = ("zero3(dp=64)", "zero1(dp=8) * tensor(tp=8)")
    found = run("compare", *texts, "--topology", "dgx-a100")
    assert "time of a rank's traffic in a step on dgx-a100" in found.out
    data = run("compare", *texts, "--topology", "dgx-a100", "--json")
    assert list(json.loads(data.out)["times"]) == list(texts)
    refused = run("compare", "zero3(dp=N)", "data(dp=N)", "--topology", "dgx-a100")
    assert (refused.code, "a time needs numbers" in refused.err) == (2, True)
    assert run("check", "zero3(dp=8)", "--topology", "nowhere").code == 2


def test_clusters_of_layouts_have_the_same_links():
    """The chooser of layouts names clusters: those of one name have the links of the topology."""
    devices = pytest.importorskip("placement_proofs.layouts.devices")
    shared = 0
    for machine in devices.machines():
        cluster = machine.cluster
        if cluster.name in TOPOLOGIES:
            on = TOPOLOGIES[cluster.name].topology
            shared += 1
            assert on.node == cluster.node
            for ours, theirs in ((on.inside, cluster.inside), (on.between, cluster.between)):
                assert (ours.latency, ours.bandwidth) == (theirs.latency, theirs.bandwidth)
    assert shared
