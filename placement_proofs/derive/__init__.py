"""Derivation: a composition on a model becomes a plan, in four passes over plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from placement_proofs.composition import Composition
from placement_proofs.derive.gathers import add_gathers
from placement_proofs.derive.kernels import with_kernels
from placement_proofs.derive.lifetimes import with_drops
from placement_proofs.derive.owners import elements, owners
from placement_proofs.derive.placed import Context, Placed, place_tensor
from placement_proofs.derive.program import values_with_internals, write_program
from placement_proofs.derive.reductions import (
    LOSSES,
    buckets,
    normalise,
    reduce_after_loop,
    reduce_for_readers,
    reduce_in_loop,
    reduce_ties,
    report,
)
from placement_proofs.derive.stages import Body, cut
from placement_proofs.derive.types import Typed, assign_layouts
from placement_proofs.derive.updates import clip, shard_set, update
from placement_proofs.errors import IllFormed
from placement_proofs.layout import sharded
from placement_proofs.mesh import Dim
from placement_proofs.model import Model
from placement_proofs.models import ROOT, transformer
from placement_proofs.placement import Placement
from placement_proofs.plan import Phase, Plan, PlanValue, Stage
from placement_proofs.profile import PAPER, Profile


def derive(
    composition: Composition,
    model: Model,
    profile: Profile = PAPER,
    *,
    clipping: bool = False,
    loss: str = "mean",
) -> Plan:
    """The plan of one training step.

    ``clipping`` adds the global gradient norm. ``loss`` is ``"mean"`` (over samples, equally many
    on every rank), ``"tokens"`` (over tokens, whose counts differ) or ``"sum"``. No arithmetic on
    sizes is done here: the same plan is costed with integers and with symbols.

    Raises:
        IllFormed: the placement has no right program on this model (the message says where).
    """
    if loss not in LOSSES:
        raise IllFormed(
            "loss", repr(loss), f"a loss is one of {', '.join(LOSSES)}", 'write "mean" or "tokens"'
        )
    placement = composition.placement
    mesh = composition.mesh
    schedule = placement.schedule
    depth: Dim = mesh.size(schedule.axis) if schedule else 1
    model = with_kernels(_cuttable(model, depth), profile)
    model = _with_units(model, profile)
    typed = assign_layouts(model, placement, profile)
    bodies, positions = cut(model, placement, depth)
    values = values_with_internals(model, typed)
    write_program(model, placement, profile, typed, values, bodies)
    shares = (mesh.sizes(), clipping, loss)
    stages = _Stages(model, placement, profile, typed, values, bodies, shares)
    batch = tuple(f.axis for f in placement.flows if f.input == sharded(0))
    return Plan(
        mesh,
        values,
        tuple(stages.stage(k) for k in range(len(bodies))),
        positions,
        placement.micro,
        schedule.kind if schedule and len(bodies) > 1 else "none",
        schedule.axis if schedule else "",
        schedule.chunks if schedule else 1,
        typed.mean_axes,
        batch,
        loss,
        profile.buffers,
    )


def _cuttable(model: Model, depth: Dim) -> Model:
    """The model with its layers one by one, if they are of several kinds and stages are known."""
    kinds = [b for b in model.blocks if b.times != 1]
    if len(kinds) < 2 or depth == 1 or not isinstance(depth, int) or model.shape is None:
        return model
    single = transformer(model.shape, name=model.name)
    return replace(single, dims=model.dims, micro_batch=model.micro_batch)


def _with_units(model: Model, profile: Profile) -> Model:
    """The gather units of a profile: those of the model, one, or one for each tensor."""
    if not profile.one_unit and not profile.tensor_units:
        return model
    units = {t.name: ROOT if profile.one_unit else t.name for t in model.tensors}
    return replace(model, tensors=tuple(replace(t, unit=units[t.name]) for t in model.tensors))


class _Stages:
    """Adds the parameters' steps to the bodies and closes them as stages."""

    def __init__(
        self,
        model: Model,
        placement: Placement,
        profile: Profile,
        typed: Typed,
        values: Mapping[str, PlanValue],
        bodies: Sequence[Body],
        options: tuple[Mapping[str, Dim], bool, str],
    ) -> None:
        self.model = model
        self.placement = placement
        self.profile = profile
        self.typed = typed
        self.values = values
        self.bodies = bodies
        self.sizes, self.clipping, self.loss = options
        self._placed: dict[int, list[Placed]] = {}
        self.first_user: dict[str, dict[int, str]] = {}
        for k, body in enumerate(bodies):
            blocks = {b.name for b in body.blocks}
            for op in model.ops:
                if op.block in blocks:
                    for name in op.params:
                        self.first_user.setdefault(name, {}).setdefault(k, op.block)

    def placed(self, k: int) -> list[Placed]:
        """The tensors of a stage, placed."""
        if k not in self._placed:
            self._placed[k] = self._place(k)
        return self._placed[k]

    def _place(self, k: int) -> list[Placed]:
        times = {b.name: b.times for b in self.bodies[k].blocks}
        result = []
        here = [t for t in self.model.tensors if k in self.first_user.get(t.name, {})]
        whole = self.profile.whole_tensors
        owned = owners(here, self.model, self.placement, self.sizes) if whole else {}
        for tensor in self.model.tensors:
            users = self.first_user.get(tensor.name, {})
            if k in users:
                tied = len(users) > 1 and times[users[k]] == 1
                use = self.typed.uses[tensor.name]
                owner = owned.get(tensor.name)
                few = elements(tensor, self.model) < self.profile.persistent_below
                context = Context(use, users[k], times[users[k]], tied, owner, few)
                result.append(place_tensor(tensor, self.placement, context, self.profile))
        return result

    def buckets(self, trained: Sequence[Placed]) -> list[list[Placed]]:
        """The tensors that are reduced together."""
        counts = {t.name: elements(t, self.model) for t in self.model.tensors}
        return buckets(trained, self.profile, counts)

    def sharings(self) -> list[tuple[str, ...]]:
        """The axis sets over which squares are summed: every stage takes part in all of them."""
        stages = range(len(self.bodies))
        trained = [p for k in stages for p in self.placed(k) if p.tensor.trainable]
        return sorted({shard_set(p) for p in trained})

    def stage(self, k: int) -> Stage:
        body = self.bodies[k]
        placed = self.placed(k)
        trained = [p for p in placed if p.tensor.trainable]
        scheduled = len(self.bodies) > 1
        schedule = self.placement.schedule
        pipeline = (schedule.axis,) if schedule and scheduled else ()
        bodies = (body.forward, body.backward, body.weights)
        forward, backward, weights = with_drops(bodies, self.values, body.kept)
        reduce_in_loop(self.buckets(trained), (backward, weights))
        before, released = add_gathers(placed, forward, backward, self.profile, scheduled=scheduled)
        after = released + reduce_after_loop(self.buckets(trained), self.profile)
        if pipeline:
            after += reduce_ties(trained, f"{pipeline[0]}:tied")
        after += normalise(trained, self.typed.mean_axes, self.loss)
        after += report(self.typed.mean_axes) if self.profile.reports_loss else []
        reads = self.profile.optimizer_reads
        if self.clipping:
            after += reduce_for_readers(trained, Phase.CLIP, 1)
            vector = self.profile.norm_vector
            after += clip(trained, self.sharings(), pipeline, tied_here=k == 0, vector=vector)
            after += reduce_for_readers(trained, Phase.UPDATE, reads, again=True)
        else:
            after += reduce_for_readers(trained, Phase.UPDATE, reads)
        after += update(trained, together=self.profile.one_broadcast)
        return Stage(
            body.name,
            tuple(p.tensor for p in placed),
            tuple(before),
            tuple(forward),
            tuple(backward),
            tuple(after),
            tuple(weights),
        )
