"""Time of traffic: latency and bandwidth of rings on nodes, and what computation waits for."""

import json

import pytest

from placement_proofs.cost import DEFAULT, communication, sizes_of
from placement_proofs.cost.time import Link, Topology, traffic_time
from placement_proofs.derive import derive
from placement_proofs.errors import IllFormed
from placement_proofs.expression import parse
from placement_proofs.models import Shape, abstract, transformer

FAST, SLOW = Link("inside", 1e-6, 100.0), Link("between", 1e-3, 10.0)
NODES = Topology(8, FAST, SLOW)


def timed(text, model, topology=NODES):
    plan = derive(parse(text), model)
    sizes = sizes_of(plan, model)
    return traffic_time(plan, sizes, DEFAULT, topology), communication(plan, sizes, DEFAULT)


def test_a_ring_waits_for_every_step():
    """An all-reduce of 2 Psi bytes: 2 (N - 1) messages, ring bytes at the bandwidth."""
    found, sent = timed("data(dp=4)", abstract(1000))
    (line,) = found.lines
    assert (line.collective, line.count, line.link) == ("all-reduce", 1, "inside")
    assert line.bytes == sent.total == 3000
    assert found.total == pytest.approx(6 * 1e-6 + 3000 / 100)
    assert found.waiting == 0


def test_an_axis_that_leaves_the_node_takes_the_slow_link():
    inner, _ = timed("data(dp=8)", abstract(1000))
    outer, _ = timed("data(dp=16)", abstract(1000))
    assert {line.link for line in inner.lines} == {"inside"}
    assert {line.link for line in outer.lines} == {"between"}


def test_the_order_of_the_axes_decides_what_is_on_a_node():
    model = transformer(Shape(heads=8, kv_heads=8, hidden=16))
    text = "zero1(dp=4) * tensor(tp=8)"
    usual, _ = timed(text, model)
    links = {line.axes: line.link for line in usual.lines}
    assert links == {("tp",): "inside", ("dp",): "between"}
    other, _ = timed(text, model, Topology(8, FAST, SLOW, order=("tp", "dp")))
    links = {line.axes: line.link for line in other.lines}
    assert links == {("tp",): "between", ("dp",): "inside"}
    own, _ = timed(text, model, Topology(8, FAST, SLOW, links={"dp": FAST}))
    assert {line.link for line in own.lines} == {"inside"}


def test_computation_waits_for_activations_alone():
    model = transformer(Shape(heads=8, kv_heads=8, hidden=16))
    found, sent = timed("zero3(dp=2) * tensor(tp=4)", model)
    waits = {line.axes for line in found.lines if line.waits}
    assert waits == {("tp",)}
    assert 0 < found.waiting < found.total
    assert sum(line.bytes for line in found.lines) == sent.total
    json.dumps(found.to_json())


def test_a_link_has_a_bandwidth():
    with pytest.raises(IllFormed, match="link wire"):
        Link("wire", 0, 0)
