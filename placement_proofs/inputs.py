"""What the user gave: an expression, a composition file, an element program, or a config file."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placement_proofs.composition import Composition, parse
from placement_proofs.errors import IllFormed
from placement_proofs.model import Model
from placement_proofs.profile import PROFILES, Profile
from placement_proofs.strategies import Strategy
from placement_proofs.zoo import load_model, model_from, named

if TYPE_CHECKING:
    from placement_proofs.configs import Imported
    from placement_proofs.program import Program

MAX_BYTES = 10_000_000


@dataclass(frozen=True)
class Subject:
    """What is to be checked: a composition on a model with deviations, or an element program."""

    text: str
    composition: Composition | None = None
    model: Model | None = None
    profile: Profile = PROFILES["paper"]
    deviations: tuple[str, ...] = ()
    program: Program | None = None
    imported: Imported | None = None

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


def read_subject(
    what: str | Path | Strategy | Composition,
    *,
    model: str | None = None,
    profile: str = "paper",
    without: Sequence[str] = (),
    world: int | None = None,
    format: str | None = None,
) -> Subject:
    """Read an expression or a file; a composition stands for its expression.

    Args:
        what: an expression, a composition, or the path of a TOML or configuration file.
        model: the name of a built-in model or a TOML file.
        profile: the training stack whose facts the plan has.
        without: deviations of the loop from the derived plan.
        world: the number of ranks of a configuration file.
        format: of a configuration file; found from its keys if absent.

    Raises:
        IllFormed: the text, the file or an option has no meaning.
    """
    text = repr(what) if isinstance(what, Strategy | Composition) else str(what)
    if profile not in PROFILES:
        raise IllFormed(
            "--profile", repr(profile), f"profiles are {', '.join(PROFILES)}", "name one of them"
        )
    facts = PROFILES[profile]
    if not _is_path(text):
        composition = parse(text)
        _check_ranks(composition, world)
        _refuse({"format": format}, "an expression has no format")
        chosen = _model(composition, model)
        return Subject(repr(composition), composition, chosen, facts, tuple(without))
    path = _existing(text)
    if path.suffix == ".toml" and format is None:
        table = _toml(path)
        if "program" in table:
            from placement_proofs.program_text import load_program

            given = {"model": model, "without": tuple(without), "world": world}
            _refuse(given, "an element program says itself what the ranks do")
            return Subject(str(path), program=load_program(path))
        if "composition" in table:
            subject = _composition_file(path, table, model, facts, without)
            _check_ranks(subject.composed()[0], world)
            return subject
    return _config(path, model, facts, without, world, format)


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


def _toml(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise IllFormed(str(path), str(error), "the file is TOML in UTF-8", "correct it") from None


def _composition_file(
    path: Path,
    table: Mapping[str, Any],
    model: str | None,
    facts: Profile,
    without: Sequence[str],
) -> Subject:
    known = {"composition", "model", "profile", "without"}
    unknown = sorted(set(table) - known)
    if unknown:
        raise IllFormed(
            f"{path}: {unknown[0]}",
            repr(table[unknown[0]])[:60],
            f"a composition file has {', '.join(sorted(known))}",
            "rename or remove it",
        )
    composition = parse(_text(path, table, "composition"), place=str(path))
    own = table.get("model")
    if model is None and isinstance(own, dict):
        chosen = model_from(own, f"{path}: model")
    else:
        chosen = _model(composition, model or (str(own) if own else None))
    if "profile" in table:
        name = _text(path, table, "profile")
        if name not in PROFILES:
            raise IllFormed(
                f"{path}: profile", repr(name), f"profiles are {', '.join(PROFILES)}", "name one"
            )
        facts = PROFILES[name]
    extra = table.get("without", [])
    if not isinstance(extra, list) or not all(isinstance(e, str) for e in extra):
        raise IllFormed(
            f"{path}: without", repr(extra)[:60], "a list of texts", 'write ["drop ..."]'
        )
    return Subject(repr(composition), composition, chosen, facts, (*extra, *without))


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


def _config(
    path: Path,
    model: str | None,
    facts: Profile,
    without: Sequence[str],
    world: int | None,
    format: str | None,
) -> Subject:
    from placement_proofs.configs import load

    given = load_model(model) if model else None
    imported = load(path, world=world, format=format, model=given)
    composition = imported.composition
    chosen = _model(composition, model)
    batch = imported.batch.micro_batch
    return Subject(
        repr(composition),
        composition,
        chosen if batch is None else replace(chosen, micro_batch=batch),
        facts,
        (*imported.deviations, *without),
        imported=imported,
    )
