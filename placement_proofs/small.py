"""Small twins of a subject: few ranks and a small model, for simulation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from placement_proofs.checking import plan_of
from placement_proofs.composition import Composition, Strategy
from placement_proofs.errors import IllFormed
from placement_proofs.inputs import Subject, read_subject
from placement_proofs.layout import sharded
from placement_proofs.mesh import Dim
from placement_proofs.model import Model
from placement_proofs.models import Shape, perceptron, transformer

if TYPE_CHECKING:
    from placement_proofs.simulate import Simulation

MODELS = ("transformer", "moe", "latent", "perceptron")
MOST = 2
"""Positions of an axis, and micro-batches, that are simulated unless more are asked for."""


@dataclass(frozen=True)
class Small:
    """A subject on few ranks and a small model, and what was made smaller."""

    subject: Subject
    notes: tuple[str, ...]


def small(subject: Subject, sizes: Mapping[str, int], model: str | None = None) -> Small:
    """The small twin of a subject; ``sizes`` are of axes and ``micro``, ``model`` one of MODELS.

    Raises:
        IllFormed: the subject is an element program, or a size is of no axis.
    """
    composition, whole = subject.composed()
    _check_names(composition, sizes)
    wanted: dict[str, Dim] = {
        **composition.mesh.sizes(),
        "micro": composition.placement.micro,
    }
    chosen = {name: sizes.get(name, _reduced(size)) for name, size in wanted.items()}
    fewer = composition.resized(chosen)
    kind = model or _kind(whole)
    less = small_model(fewer, chosen, kind)
    notes = [f"{n} = {chosen[n]} stands for {wanted[n]}" for n in wanted if chosen[n] != wanted[n]]
    notes.append(f"the small model {less.name} stands for {whole.name}")
    twin = replace(subject, text=repr(fewer), composition=fewer, model=less)
    return Small(twin, tuple(notes))


def simulate_small(
    what: Subject | Composition | Strategy | str,
    sizes: Mapping[str, int] | None = None,
    *,
    model: str | None = None,
    **options: Any,
) -> tuple[Small, Simulation]:
    """Run the small twin of a subject on virtual ranks and compare it with one device.

    ``sizes`` and ``model`` are those of :func:`small`, ``options`` those of :func:`simulate`.

    Raises:
        IllFormed: the subject is an element program, or a name is unknown.
    """
    from placement_proofs.simulate import simulate

    subject = what if isinstance(what, Subject) else read_subject(what)
    twin = small(subject, sizes or {}, model)
    plan, tiny = plan_of(twin.subject)
    return twin, simulate(plan, tiny, **options)


def _kind(model: Model) -> str:
    """The small model that has the operations of a model."""
    if "rkv" in model.dims:
        return "latent"
    return "moe" if "E" in model.dims else "transformer"


def _with_latent(shape: Shape) -> Shape:
    """Latent attention beside experts; the first layer is dense."""
    latent = replace(shape, kv_rank=4, q_rank=4, nope_dim=2, rope_dim=2, value_dim=2)
    return replace(latent, dense_layers=1)


def _reduced(size: Dim) -> int:
    return min(size, MOST) if isinstance(size, int) else MOST


def _check_names(composition: Composition, sizes: Mapping[str, int]) -> None:
    known = [*composition.mesh.names, "micro"]
    for name in sizes:
        if name not in known:
            raise IllFormed(
                "--size", f"{name}={sizes[name]}", f"the sizes are {', '.join(known)}", "name one"
            )


def small_model(composition: Composition, sizes: Mapping[str, int], kind: str) -> Model:
    """The smallest model whose layers, heads and sequence divide on the mesh."""
    placement = composition.placement
    batch = {flow.axis for flow in placement.flows if flow.input == sharded(0)}
    schedule = placement.schedule
    stages = sizes[schedule.axis] * schedule.chunks if schedule else 1
    others = batch | {"micro", schedule.axis if schedule else ""}
    parts = math.prod(size for axis, size in sizes.items() if axis not in others)
    layers = stages * -(-2 // stages)
    width = math.lcm(4, parts)
    if kind == "perceptron":
        return perceptron(layers, 2 * width, 4 * width)
    experts = math.lcm(2, sizes.get("ep", 1)) if kind in ("moe", "latent") else 0
    shape = Shape(
        layers=layers,
        hidden=2 * width,
        heads=width,
        kv_heads=width,
        ffn=4 * width,
        sequence=width * max(1, experts),
        experts=experts,
    )
    return transformer(_with_latent(shape) if kind == "latent" else shape, name=kind)
