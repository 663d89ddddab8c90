"""The loss: a rational analogue of cross-entropy, with the same three statistics of a token.

Of the logits z of a token with label t it takes m, the sum of z (in place of the maximum), q, the
sum of z^2 (in place of the sum of exponentials), and z_t; the token's loss is
``(m^2 + q) / (1 + z_t^2)``. Over vocabulary shards the three are summed by the plan. A rank's loss
is the mean over its tokens, which the plan makes the mean over ranks and micro-batches; or the sum
over its tokens, which the plan divides by the tokens of all ranks or leaves.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from placement_proofs.simulate.failure import CannotRun
from placement_proofs.simulate.field import Array
from placement_proofs.simulate.site import Back, Given, Made, Setting, Site

STATISTICS = ("maximum", "sum", "target")


def _grid(at: Sequence[range]) -> list[Array]:
    """The global positions of tokens, one array per dim, to be broadcast against each other."""
    shapes = [[len(p) if i == dim else 1 for i in range(len(at))] for dim, p in enumerate(at)]
    return [np.array(p, np.int64).reshape(shape) for p, shape in zip(at, shapes, strict=True)]


def _labels(site: Site) -> Array:
    """The labels of the rank's tokens, from their global positions and the step: (..., 1)."""
    label = np.full((1,) * (len(site.ins[0]) - 1), 3 * site.setting.step, np.int64)
    for dim, positions in enumerate(_grid(site.positions(len(site.ins[0]) - 1))):
        label = label + (2 * dim + 1) * positions
    return (label % site.widths[0])[..., None]


def _target(site: Site) -> Array:
    """One where a logit of the rank is the label's."""
    start, stop = site.ins[0][-1]
    hot: Array = (_labels(site) == np.arange(start, stop)).astype(np.int64)
    return hot


def counted(at: Sequence[range], setting: Setting) -> Array:
    """Which tokens at some global positions count in the loss: all but, by tokens, about a third.

    The tokens that do not count are spread unevenly over sequences, as padding is.
    """
    grid = _grid(at)
    mixed = np.full((1,) * len(at), 1, np.int64)
    for positions in grid:
        mixed = mixed * (positions + 1)
    keeps = np.ones_like(mixed) if setting.loss != "tokens" else (mixed + setting.step) % 3
    return np.asarray(keeps != 0, np.int64)


def _weights(site: Site) -> Array:
    """The weight of each of the rank's tokens in its loss: in a mean, one over their number."""
    f, at = site.field, site.positions(len(site.ins[0]) - 1)
    weights = counted(at, site.setting)
    if site.setting.loss != "mean":
        return weights
    tokens = weights.size
    if not tokens:
        raise CannotRun(f"{site.run.out}: a rank has no tokens to take a mean of")
    return f.multiply(weights, f.constant(1, tokens))


def loss(site: Site, given: Given) -> Made:
    """The rank's loss (a scalar), and the statistics of its tokens."""
    f, z = site.field, given.value(0)
    found = (f.sum(z, -1), f.sum(f.multiply(z, z), -1), f.sum(f.multiply(z, _target(site)), -1))
    kept = {f"{site.run.out}.{n}": s for n, s in zip(STATISTICS, found, strict=True)}
    m, q, t = found
    each = f.multiply(f.add(f.multiply(m, m), q), f.inverse(f.add(f.multiply(t, t), 1)))
    copies = {name: z for name, _ in site.run.internals}
    return np.asarray(f.sum(f.multiply(each, _weights(site))), f.dtype), kept | copies


def loss_back(site: Site, dy: Array, given: Given) -> Back:
    """The gradient of the logits, from the statistics as the ranks have exchanged them."""
    f, z = site.field, given.value(0)
    m, q, t = (given.internal(f"{site.run.out}.{n}")[..., None] for n in STATISTICS)
    r = f.inverse(f.add(f.multiply(t, t), 1))
    slope = f.multiply(f.add(f.add(m, m), f.add(z, z)), r)
    drop = f.multiply(f.multiply(f.add(f.multiply(m, m), q), f.add(t, t)), f.multiply(r, r))
    dz = f.subtract(slope, f.multiply(drop, _target(site)))
    return [f.multiply(f.multiply(dz, _weights(site)[..., None]), dy)], []
