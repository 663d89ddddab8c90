"""Operations: hand-derived adjoints against finite differences, in floats."""

import numpy as np
import pytest

from placement_proofs.plan import Phase, Run, Where
from placement_proofs.simulate.failure import CannotRun
from placement_proofs.simulate.field import FIELDS
from placement_proofs.simulate.ops import BACKWARD, FORWARD
from placement_proofs.simulate.site import Given, Setting, Site

(FLOAT,) = FIELDS["float"]()
WHERE = Where(Phase.FORWARD)

# kind: shapes of inputs and of parameters, the operation's integers
CASES = {
    "linear": ([(2, 3, 4)], [(5, 4)], {}),
    "bias": ([(2, 3, 4)], [(4,)], {}),
    "norm": ([(2, 3, 4)], [(4,)], {}),
    "activation": ([(2, 3)], [], {}),
    "multiply": ([(2, 3), (2, 3)], [], {}),
    "add": ([(2, 3), (2, 3)], [], {}),
    "dispatch": ([(2, 6, 3)], [], {"out": 2}),
    "combine": ([(2, 2, 3, 3), (2, 6, 2)], [], {}),
    "expert": ([(2, 2, 3, 4)], [(2, 5, 4)], {}),
    "opaque": ([(3, 2)], [(5,)], {}),
    "loss": ([(2, 3, 5)], [], {}),
    "attention": ([(2, 3, 8), (2, 3, 4), (2, 3, 4)], [], {"heads": 4, "kv_heads": 2}),
}


def site(kind, ins, params, attrs):
    internals = (("scores", ("B", "a", "s", "s")),) if kind == "attention" else ()
    run = Run(kind, "out", tuple("xyz"[: len(ins)]), (), (), WHERE, internals=internals)
    whole = [tuple((0, n) for n in shape) for shape in ins]
    return Site(
        FLOAT,
        run,
        Setting(),
        tuple(whole),
        tuple(tuple((0, n) for n in shape) for shape in params),
        tuple(shape[-1] for shape in ins),
        attrs,
    )


@pytest.mark.parametrize("kind", CASES)
def test_adjoint_is_the_derivative(kind):
    shapes, params, attrs = CASES[kind]
    here = site(kind, shapes, params, attrs)
    rng = np.random.default_rng(1)
    arrays = [rng.uniform(-1, 1, shape) for shape in (*shapes, *params)]
    n = len(shapes)

    def forward(given):
        return FORWARD[kind](here, Given(given[:n], given[n:], {}))

    out, kept = forward(arrays)
    dy = rng.uniform(-1, 1, out.shape)
    dins, dparams = BACKWARD[kind](here, dy, Given(arrays[:n], arrays[n:], kept))
    for i, gradient in enumerate((*dins, *dparams)):
        assert gradient.shape == arrays[i].shape
        assert np.allclose(gradient, differences(forward, arrays, i, dy), atol=1e-7)


def differences(forward, arrays, i, dy, step=1e-5):
    """The gradient of ``sum(dy * output)`` by one array, by central differences."""
    result = np.zeros_like(arrays[i])
    for at in np.ndindex(arrays[i].shape):
        moved = []
        for sign in (1, -1):
            changed = arrays[i].copy()
            changed[at] += sign * step
            moved.append(np.sum(dy * forward([*arrays[:i], changed, *arrays[i + 1 :]])[0]))
        result[at] = (moved[0] - moved[1]) / (2 * step)
    return result


def test_embedding_picks_rows_and_adds_their_gradients_up():
    table = np.arange(8.0).reshape(4, 2)
    ids = np.array([[1, 1, 6]])
    run = Run("embedding", "out", ("ids",), ("table",), ((),), WHERE)
    part = Site(FLOAT, run, Setting(), (((0, 1), (0, 3)),), (((1, 3), (0, 2)),), (3,), {"rows": 4})
    given = Given([ids], [table[1:3]], {})
    out, _ = FORWARD["embedding"](part, given)
    assert out.tolist() == [[[2, 3], [2, 3], [4, 5]]]
    _, (dtable,) = BACKWARD["embedding"](part, np.ones((1, 3, 2)), given)
    assert dtable.tolist() == [[2, 2], [1, 1]]


def test_a_part_of_a_head_cannot_run():
    shapes, params, attrs = CASES["attention"]
    here = site("attention", [(2, 3, 7), *shapes[1:]], params, attrs | {"heads": 3})
    arrays = [np.zeros(s) for s in ((2, 3, 7), *shapes[1:])]
    with pytest.raises(CannotRun, match="part of a head"):
        FORWARD["attention"](here, Given(arrays, [], {}))
