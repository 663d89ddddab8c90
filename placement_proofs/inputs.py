"""What the user gave: an expression, a composition file, an element program, or a config file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placement_proofs.composition import Composition, Strategy, compose
from placement_proofs.errors import IllFormed
from placement_proofs.expression import parse
from placement_proofs.model import Model
from placement_proofs.placement import EVERY
from placement_proofs.profile import PAPER, Profile
from placement_proofs.profile import profile as profile_named
from placement_proofs.program import Program
from placement_proofs.toml_file import read_toml
from placement_proofs.zoo import load_model, model_from, named

if TYPE_CHECKING:
    from placement_proofs.configs import Imported

MAX_BYTES = 10_000_000


@dataclass(frozen=True)
class Subject:
    """What is to be checked: a composition on a model with deviations, or an element program."""

    text: str
    composition: Composition | None = None
    model: Model | None = None
    profile: Profile = PAPER
    deviations: tuple[str, ...] = ()
    loss: str = "mean"
    program: Program | None = None
    imported: Imported | None = None
    relaxed: tuple[str, ...] = ()

    def composed(self) -> tuple[Composition, Model]:
        """The composition and its model.

        Raises:
            IllFormed: the subject is an element program.
        """
        if self.composition is None or self.model is None:
            raise IllFormed(
                self.text,
                "an element program",
                "it has no placement, hence no cost or simulation",
                "give a composition",
            )
        return self.composition, self.model


@dataclass(frozen=True)
class Options:
    """What is said beside the text; ``None`` leaves it to the file or to the default."""

    model: str | None = None
    profile: str | None = None
    loss: str | None = None
    without: tuple[str, ...] = ()
    world: int | None = None
    format: str | None = None
    relax: tuple[str, ...] = ()

    @property
    def facts(self) -> Profile:
        """The profile.

        Raises:
            IllFormed: no profile has that name.
        """
        return profile_named(self.profile or PAPER.name)


def read_subject(
    what: str | Path | Strategy | Composition | Program,
    *,
    model: str | None = None,
    profile: str | None = None,
    loss: str | None = None,
    without: Sequence[str] = (),
    world: int | None = None,
    format: str | None = None,
    relax: Sequence[str] = (),
) -> Subject:
    """Read an expression or a file, or take what is already read.

    Args:
        what: an expression, a composition (of own strategies too), an element program, or the path
            of a TOML or configuration file.
        model: the name of a built-in model or a TOML file.
        profile: the training stack whose facts the plan has.
        loss: ``"mean"`` over samples, ``"tokens"`` (a mean over all tokens) or ``"sum"``.
        without: deviations of the loop from the derived plan.
        world: the number of ranks of a configuration file.
        format: of a configuration file; found from its keys if absent.
        relax: claims about an element program that are weaker than what it says.

    Raises:
        IllFormed: the text, the file or an option has no meaning.
    """
    options = Options(model, profile, loss, tuple(without), world, format, tuple(relax))
    if isinstance(what, Program):
        return _program(what.name or "element program", what, options)
    if isinstance(what, Strategy | Composition) or not _is_path(str(what)):
        composition = _composition(what)
        _check_ranks(composition, world)
        _refuse({"format": format}, "an expression has no format")
        _refuse({"relax": relax}, "relaxed claims are about element programs")
        return _subject(composition, _model(composition, model), options)
    path = _existing(str(what))
    if path.suffix == ".toml" and format is None:
        table = read_toml(path)
        if "program" in table:
            return _element_program(path, options)
        if "faulty" in table and "fixed" in table:
            return _faulty_form(path, table, options)
        if "composition" in table:
            _refuse({"relax": relax}, "relaxed claims are about element programs")
            subject = _composition_file(path, table, options)
            _check_ranks(subject.composed()[0], world)
            return subject
    _refuse({"relax": relax}, "relaxed claims are about element programs")
    return _config(path, options)


def _composition(what: str | Path | Strategy | Composition) -> Composition:
    """What an expression says; parts that were put together by hand are checked too."""
    if isinstance(what, Strategy):
        return compose(what)
    return compose(*what.strategies) if isinstance(what, Composition) else parse(str(what))


def _subject(composition: Composition, model: Model, options: Options) -> Subject:
    _check_groups(composition, model)
    return Subject(
        repr(composition),
        composition,
        model,
        options.facts,
        options.without,
        loss=options.loss or "mean",
    )


def _check_groups(composition: Composition, model: Model) -> None:
    """A group that is named by hand has parameters: else nothing would be placed, silently."""
    groups = dict.fromkeys(tensor.group for tensor in model.tensors)
    for strategy in composition.strategies:
        group = dict(strategy.arguments).get("group", EVERY)
        if group not in (EVERY, None, *groups):
            raise IllFormed(
                f"{strategy.name}(group=...)",
                repr(group),
                f"the parameter groups of model {model.name} are {', '.join(groups)}",
                "name one of them, or leave group out for all",
            )


def _element_program(path: Path, options: Options) -> Subject:
    from placement_proofs.program.text import load_file

    file = load_file(path)
    subject = _program(str(path), file.program, options)
    return replace(subject, relaxed=(*file.relax, *options.relax))


def _faulty_form(path: Path, table: Mapping[str, Any], options: Options) -> Subject:
    """The faulty form of a published fault; ``placement-proofs faults`` runs both."""
    from placement_proofs.program.text import parse_program

    program = parse_program(str(table["faulty"]), place=f"{path}, faulty")
    return _program(f"{path} (faulty form)", program, options)


def _program(text: str, program: Program, options: Options) -> Subject:
    """An element program with the claims that were chosen for it; it says all else itself."""
    from placement_proofs.program.relax import relaxed

    given = {k: v for k, v in vars(options).items() if k not in ("format", "relax")}
    _refuse(given, "an element program says itself what the ranks do")
    return Subject(text, program=relaxed(program, options.relax), relaxed=options.relax)


def _check_ranks(composition: Composition, world: int | None) -> None:
    """The number of ranks, where it is given beside a composition, is the product of its axes."""
    sizes = [axis.size for axis in composition.mesh.axes]
    known = [size for size in sizes if isinstance(size, int)]
    if world is None or (len(known) == len(sizes) and math.prod(known) == world):
        return
    product = " * ".join(str(size) for size in sizes) or "1"
    raise IllFormed(
        "--world",
        str(world),
        f"the axes of {composition!r} multiply to {product} ranks",
        "correct a size, or leave the option out: it is for configuration files",
    )


def _refuse(options: Mapping[str, object], rule: str) -> None:
    """Options that would be ignored: an answer must be about what was asked."""
    for name, value in options.items():
        if value:
            raise IllFormed(f"--{name}", repr(value)[:60], rule, "leave the option out")


def _is_path(text: str) -> bool:
    suffixes = (".toml", ".json", ".yaml", ".yml", ".sh", ".sbatch", ".slurm", ".py")
    if text.endswith(suffixes):
        return True
    named = text.strip() != "" and len(text) < 4096 and "(" not in text and "\0" not in text
    return named and Path(text).exists()


def _existing(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        found = "a folder" if path.is_dir() else "no such file"
        raise IllFormed(text, found, "a file to check must exist", "correct the path")
    if path.stat().st_size > MAX_BYTES:
        raise IllFormed(
            text,
            f"{path.stat().st_size:,} bytes",
            f"configuration files have at most {MAX_BYTES:,} bytes",
            "give the configuration, not a log or a checkpoint",
        )
    return path


def composition_file(subject: Subject) -> str:
    """A composition with its model, profile, loss and deviations as a TOML file."""
    composition, model = subject.composed()
    said = {"composition": repr(composition), "model": model.name}
    said |= {"profile": subject.profile.name, "loss": subject.loss}
    lines = [f"{key} = {json.dumps(value)}" for key, value in said.items()]
    if subject.deviations:
        listed = "".join(f"  {json.dumps(text)},\n" for text in subject.deviations)
        lines.append(f"without = [\n{listed}]")
    return "\n".join(lines) + "\n"


def _composition_file(path: Path, table: Mapping[str, Any], options: Options) -> Subject:
    """A composition with its model, profile, loss and deviations; options replace what it says."""
    known = {"composition", "model", "profile", "loss", "without"}
    unknown = sorted(set(table) - known)
    if unknown:
        raise IllFormed(
            f"{path}: {unknown[0]}",
            repr(table[unknown[0]])[:60],
            f"a composition file has {', '.join(sorted(known))}",
            "rename or remove it",
        )
    composition = parse(_text(path, table, "composition"), place=str(path))
    said = {key: _text(path, table, key) for key in ("profile", "loss") if key in table}
    if "profile" in said:
        profile_named(said["profile"], f"{path}: profile")
    chosen = replace(
        options,
        profile=options.profile or said.get("profile"),
        loss=options.loss or said.get("loss"),
        without=(*_deviations(path, table), *options.without),
    )
    return _subject(composition, _file_model(path, table, composition, options.model), chosen)


def _deviations(path: Path, table: Mapping[str, Any]) -> list[str]:
    listed = table.get("without", [])
    if not isinstance(listed, list) or not all(isinstance(e, str) for e in listed):
        raise IllFormed(
            f"{path}: without", repr(listed)[:60], "a list of texts", 'write ["drop ..."]'
        )
    return listed


def _file_model(
    path: Path, table: Mapping[str, Any], composition: Composition, model: str | None
) -> Model:
    own = table.get("model")
    if model is None and isinstance(own, dict):
        return model_from(own, f"{path}: model")
    return _model(composition, model or (str(own) if own else None))


def _text(path: Path, table: Mapping[str, Any], key: str) -> str:
    value = table[key]
    if not isinstance(value, str):
        raise IllFormed(f"{path}: {key}", repr(value)[:60], "a text", f'write {key} = "..."')
    return value


def _model(composition: Composition, model: str | None) -> Model:
    """The model asked for, or the default that has what the composition places."""
    if model is not None:
        return load_model(model)
    experts = any(p.group.startswith("expert") for p in _own(composition))
    chosen = named("moe" if experts else "dense")
    assert chosen is not None
    return chosen


def _own(composition: Composition) -> list[Any]:
    """Cells of strategies that place nothing but experts."""
    return [
        place
        for strategy in composition.strategies
        if {p.group for p in strategy.placement.places} == {"expert_in", "expert_out"}
        for place in strategy.placement.places
    ]


def _config(path: Path, options: Options) -> Subject:
    from placement_proofs.configs import load

    given = load_model(options.model) if options.model else None
    imported = load(path, world=options.world, format=options.format, model=given)
    composition = imported.composition
    model = given or _model_of(path, imported, composition)
    batch = imported.batch.micro_batch
    return replace(
        _subject(composition, replace(model, micro_batch=batch) if batch else model, options),
        deviations=(*imported.deviations, *options.without),
        imported=imported,
    )


def _model_of(path: Path, imported: Imported, composition: Composition) -> Model:
    """The shape that the file gives; what it does not give is that of the default model."""
    stand_in = _model(composition, None)
    shape = imported.shape
    if not shape:
        return stand_in
    return model_from({"base": stand_in.name, **shape}, f"{path}: shape", stand_in.name)
