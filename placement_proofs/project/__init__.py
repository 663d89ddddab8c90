"""Projection: a plan, group by group, on one generic element (the semantics page, section 3)."""

from __future__ import annotations

from dataclasses import dataclass

from placement_proofs.plan import Plan, Stage
from placement_proofs.program import Program
from placement_proofs.project.activations import project_activations
from placement_proofs.project.norm import project_norm
from placement_proofs.project.tensors import project_tensor
from placement_proofs.project.tied import project_tied


@dataclass(frozen=True)
class Projected:
    """An element program, what it is about, and the tensors or values that it stands for."""

    about: str
    program: Program
    members: tuple[str, ...]
    groups: tuple[str, ...] = ()
    subjects: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def members_of(self, subject: str) -> tuple[str, ...]:
        """The tensors or values behind one buffer or parameter of the program."""
        return dict(self.subjects).get(subject, self.members)


def project(plan: Plan) -> tuple[Projected, ...]:
    """The distinct element programs of a plan: parameters, activation edges, the global norm.

    Tensors with equal programs share one; the work does not depend on sizes or depth.
    """
    programs: dict[Program, tuple[list[str], list[str]]] = {}
    for stage in plan.stages:
        for tensor in stage.tensors:
            program = _program(plan, stage, tensor.name)
            if program is not None:
                names, groups = programs.setdefault(program, ([], []))
                names.append(tensor.name)
                groups.append(tensor.group)
    projected = [
        Projected("parameters", program, _once(names), _once(groups))
        for program, (names, groups) in programs.items()
    ]
    for about, made in (
        ("activations", project_activations(plan)),
        ("gradient norm", project_norm(plan)),
    ):
        if made is not None:
            program, names_of = made
            members = [name for names in names_of.values() for name in names]
            subjects = tuple((key, _once(names)) for key, names in names_of.items())
            projected.append(Projected(about, program, _once(members), subjects=subjects))
    return tuple(projected)


def _program(plan: Plan, stage: Stage, name: str) -> Program | None:
    ends = plan.tied(name)
    if ends:
        return project_tied(plan, name) if stage is ends[0] else None
    tensor = next(t for t in stage.tensors if t.name == name)
    return project_tensor(plan, stage, tensor)


def _once(names: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
