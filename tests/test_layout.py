"""Layouts: conversions are exact adjoints; shards cover, in order, without overlap."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from placement_proofs.layout import (
    INVARIANT,
    PARTIAL,
    REPLICATED,
    Collective,
    Entry,
    Local,
    bounds_at,
    chunk,
    conversion,
    dual,
    dual_layout,
    local_shape,
    sharded,
)
from placement_proofs.mesh import IntSizes

LAYOUTS = (INVARIANT, REPLICATED, PARTIAL, sharded(0), sharded(1))


def test_the_backward_of_a_conversion_is_the_forward_of_the_dual_conversion():
    for source, target in itertools.product(LAYOUTS, LAYOUTS):
        moves = conversion(source, target)
        if moves is None or source == target:
            continue
        back = conversion(dual(target), dual(source))
        expected = Local.NOTHING if dual(target) == dual(source) else back[0]
        assert moves[1] is expected


def test_the_table_of_the_semantics_page():
    s = sharded(0)
    table = {
        (INVARIANT, REPLICATED): (Local.NOTHING, Collective.ALL_REDUCE),
        (s, REPLICATED): (Collective.ALL_GATHER, Collective.REDUCE_SCATTER),
        (PARTIAL, INVARIANT): (Collective.ALL_REDUCE, Local.NOTHING),
        (PARTIAL, s): (Collective.REDUCE_SCATTER, Collective.ALL_GATHER),
        (INVARIANT, s): (Local.SLICE, Collective.ALL_GATHER),
        (s, INVARIANT): (Collective.ALL_GATHER, Local.SLICE),
    }
    for (source, target), moves in table.items():
        assert conversion(source, target) == moves


def test_no_conversion_makes_a_gradient_of_parts_one_that_is_whole():
    assert conversion(REPLICATED, INVARIANT) is None
    assert conversion(REPLICATED, PARTIAL) is None
    assert conversion(INVARIANT, PARTIAL) is None


@given(st.integers(0, 50), st.integers(1, 9))
def test_chunks_cover_in_order(length, parts):
    bounds = [chunk(length, parts, i) for i in range(parts)]
    assert bounds[0][0] == 0
    assert bounds[-1][1] == length
    assert all(a[1] == b[0] for a, b in itertools.pairwise(bounds))


@given(st.integers(1, 13), st.integers(1, 3), st.integers(1, 3), st.booleans())
def test_shards_of_all_ranks_cover_a_dim_once(length, a, b, product):
    sizes = IntSizes({"a": a, "b": b}, {})
    s = sharded(0)
    layout = (Entry(("a", "b"), s),) if product else (Entry(("a",), s), Entry(("b",), s))
    held = [
        i
        for x, y in itertools.product(range(a), range(b))
        for i in range(*bounds_at((length,), layout, sizes, {"a": x, "b": y})[0])
    ]
    assert sorted(held) == list(range(length))
    largest = local_shape((length,), layout, sizes)[0]
    sizes_held = [
        stop - start
        for x, y in itertools.product(range(a), range(b))
        for start, stop in [bounds_at((length,), layout, sizes, {"a": x, "b": y})[0]]
    ]
    assert max(sizes_held) == largest


def test_a_product_is_not_nested_chunks():
    sizes = IntSizes({"a": 2, "b": 2}, {})
    s = sharded(0)
    product = local_shape((5,), (Entry(("a", "b"), s),), sizes)
    nested = local_shape((5,), (Entry(("a",), s), Entry(("b",), s)), sizes)
    assert (product, nested) == ((2,), (2,))
    at = {"a": 1, "b": 0}
    assert bounds_at((5,), (Entry(("a", "b"), s),), sizes, at) == ((4, 5),)
    assert bounds_at((5,), (Entry(("a",), s), Entry(("b",), s)), sizes, at) == ((3, 4),)


def test_the_gradient_of_a_replicated_value_is_partial():
    layout = (Entry(("dp",), sharded(0)), Entry(("tp",), REPLICATED))
    assert dual_layout(layout) == (Entry(("dp",), sharded(0)), Entry(("tp",), PARTIAL))
    assert dual_layout(dual_layout(layout)) == (Entry(("dp",), sharded(0)),)
