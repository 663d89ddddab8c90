"""The sizes of a plan on a model as integers, checked."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from placement_proofs.errors import IllFormed
from placement_proofs.mesh import Dim, IntSizes, parent
from placement_proofs.model import Model
from placement_proofs.plan import Plan


def sizes_of(
    plan: Plan, model: Model, *, axes: Mapping[str, int] | None = None, micro: int | None = None
) -> IntSizes:
    """All sizes of ``plan`` as integers.

    ``axes`` gives a size to axes (or to symbols) by name; ``micro`` is the number of micro-batches
    where the composition has a symbol.

    Raises:
        IllFormed: a size is still a symbol, is not positive, or does not divide what it must
            divide (layers by stages).
    """
    given = dict(axes or {})
    mesh = {a.name: _number(plan, a.name, a.size, given) for a in plan.mesh.axes}
    loop = _micro(plan, given if micro is None else given | {"micro": micro})
    batch = model.micro_batch * loop * math.prod(mesh[a] for a in plan.batch_axes)
    symbols = {**model.dims, "B": batch}
    if isinstance(plan.micro, str):
        symbols[plan.micro] = loop
    sizes = IntSizes({**mesh, "micro": loop}, symbols)
    _check_stages(plan, sizes)
    _check_quotients(plan, sizes)
    return sizes


def _number(plan: Plan, name: str, size: Dim, given: Mapping[str, int]) -> int:
    found = given.get(name, given.get(size, size) if isinstance(size, str) else size)
    if isinstance(found, str):
        raise IllFormed(
            f"axis {name}",
            f"the symbol {found}",
            "numbers need the size of every axis",
            f"give {name} a number, such as {name}=8",
        )
    if name == plan.pipeline and isinstance(size, int) and found != size:
        raise IllFormed(
            f"axis {name}",
            f"{found} for a plan of {size} stages",
            "the number of stages decides what the stages are",
            "derive a plan for the other number",
        )
    return _positive(f"axis {name}", found)


def _micro(plan: Plan, given: Mapping[str, int]) -> int:
    found = given.get("micro", plan.micro)
    found = given.get(found, found) if isinstance(found, str) else found
    if isinstance(found, str) or (isinstance(plan.micro, int) and found != plan.micro):
        raise IllFormed(
            "micro-batches",
            f"{found!r} for a plan with micro={plan.micro!r}",
            "numbers need the number of micro-batches of the plan",
            "give it where the composition has a symbol, or derive a plan for the other number",
        )
    return _positive("micro-batches", found)


def _positive(place: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise IllFormed(place, repr(value), "a size is a whole number from 1", "write 1 or more")
    return value


def _check_stages(plan: Plan, sizes: IntSizes) -> None:
    if plan.schedule != "none" and sizes.axis(plan.pipeline) < 2:
        raise IllFormed(
            f"axis {plan.pipeline}",
            "1",
            "this plan has a first and a last stage on different ranks",
            f"derive a plan with {plan.pipeline}=1",
        )


def _quotients(plan: Plan) -> Iterator[str]:
    """The texts of sizes with a division, once each."""
    found: dict[str, None] = {}
    for stage in plan.stages:
        for tensor in stage.tensors:
            found |= {d: None for d in (*tensor.shape, tensor.times) if isinstance(d, str)}
    for value in plan.values.values():
        found |= {d: None for d in value.shape if isinstance(d, str)}
    return (text for text in found if "/" in text)


def _check_quotients(plan: Plan, sizes: IntSizes) -> None:
    for text in _quotients(plan):
        numerator, *divisors = text.split("/")
        whole = math.prod(sizes.dim(d.strip()) for d in divisors)
        if sizes.dim(numerator) % whole:
            names = " times ".join(parent(d.strip()) for d in divisors)
            raise IllFormed(
                f"size {text}",
                f"{sizes.dim(numerator)} / {whole}",
                f"{numerator} is cut into equal parts by {names}",
                f"choose sizes of which {whole} divides {numerator}",
            )
