"""Whether a plan fits known sizes: batch, sequence, heads, experts and layers must divide."""

from __future__ import annotations

from placement_proofs.errors import IllFormed
from placement_proofs.layout import Layout
from placement_proofs.mesh import Dim, IntSizes
from placement_proofs.model import Model
from placement_proofs.plan import Plan, Run
from placement_proofs.schedule import check_rounds

UNEVEN = ("V", "f", "fs", "fe", "Psi")
"""Dims whose shards may differ in size: they are padded on the wire, not rejected."""


def check_fit(plan: Plan, model: Model, sizes: IntSizes) -> None:
    """Check the divisions that the program relies on.

    Raises:
        IllFormed: a dim of an activation, the heads of attention, or the layers do not divide.
    """
    for value in plan.values.values():
        for dim, size in enumerate(value.shape):
            if size not in UNEVEN and not _is_heads(model, size):
                _check_dim(value.name, size, dim, value.layout, sizes)
    for _, _, step in plan.steps():
        if isinstance(step, Run) and "heads" in dict(step.attrs) and not step.backward:
            _check_heads(plan, step, sizes)
    _check_layers(plan, model, sizes)
    check_rounds(plan, sizes)


def _is_heads(model: Model, size: Dim) -> bool:
    return size in ("h", "hkv", "ha", "hq", "hn", "hv")


def _parts(layout: Layout, dim: int, sizes: IntSizes) -> tuple[int, tuple[str, ...]]:
    axes = tuple(a for e in layout if e.on.dim == dim for a in e.axes)
    return sizes.product([sizes.axis(a) for a in axes]), axes


def _check_dim(name: str, size: Dim, dim: int, layout: Layout, sizes: IntSizes) -> None:
    parts, axes = _parts(layout, dim, sizes)
    if sizes.dim(size) % parts:
        raise IllFormed(
            f"activation {name}, dim {dim}",
            f"{size} = {sizes.dim(size)} on {'*'.join(axes)} = {parts}",
            "each rank takes an equal part of batch, sequence and experts",
            f"choose {'*'.join(axes)} to divide {sizes.dim(size)}",
        )


def _check_heads(plan: Plan, run: Run, sizes: IntSizes) -> None:
    attrs = dict(run.attrs)
    for name, heads in zip(run.ins[:2], ("heads", "kv_heads"), strict=True):
        parts, axes = _parts(plan.values[name].layout, 2, sizes)
        count = sizes.dim(attrs[heads])
        if count % parts:
            remedy = f"choose {'*'.join(axes)} to divide {count}"
            if heads == "kv_heads":
                remedy += ", or keep key and value projections whole: replicate_kv=True"
            raise IllFormed(
                f"attention {run.out}",
                f"{count} {heads.replace('_', '-')} on {'*'.join(axes)} = {parts}",
                "each rank computes whole heads",
                remedy,
            )


def _check_layers(plan: Plan, model: Model, sizes: IntSizes) -> None:
    folded = [b for b in model.blocks if b.times != 1]
    if not folded or plan.schedule == "none" or len(plan.stages) != 3:
        return
    layers = sizes.dim(folded[-1].times)
    stages = sizes.axis(plan.pipeline) * plan.chunks
    if layers % stages:
        raise IllFormed(
            f"{plan.pipeline} = {sizes.axis(plan.pipeline)}, {plan.chunks} chunks a rank",
            f"{layers} layers on {stages} stages",
            "stages of a folded model hold equal numbers of layers",
            f"choose a number of stages that divides {layers}",
        )
