"""From a composition to another framework's file, with what is lost on the way."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placement_proofs.composition import Composition
from placement_proofs.configs.degrees import Reading, differences, read_degrees
from placement_proofs.configs.writers.draft import Chosen, Draft, Loss, shown
from placement_proofs.configs.writers.text import commented
from placement_proofs.errors import IllFormed

if TYPE_CHECKING:
    from placement_proofs.configs.record import Imported

_BACK = "the written file reads back as"
SCHEMA = "placement-proofs/convert/1"


@dataclass(frozen=True)
class Format:
    """A format: its framework, the ending of its files, whether they have comments."""

    framework: str
    suffix: str
    comments: bool = True


FORMATS: Mapping[str, Format] = {
    "deepspeed": Format("DeepSpeed", ".json", comments=False),
    "accelerate": Format("Accelerate", ".yaml"),
    "torchtitan": Format("torchtitan", ".toml"),
    "megatron": Format("Megatron-LM", ".sh"),
    "nanotron": Format("nanotron", ".yaml"),
    "axolotl": Format("axolotl", ".yaml"),
    "llamafactory": Format("LLaMA-Factory", ".yaml"),
    "maxtext": Format("MaxText", ".yml"),
    "nemo": Format("NeMo", ".yaml"),
    "gptneox": Format("GPT-NeoX", ".yml"),
}


@dataclass(frozen=True)
class Conversion:
    """A written file.

    ``losses`` are roles of the composition that it does not carry, ``chosen`` values that it needs
    and the source leaves open. ``read_back`` is what the format's own importer understands.
    """

    format: str
    source: str
    text: str
    losses: tuple[Loss, ...]
    chosen: tuple[Chosen, ...]
    read_back: str

    def to_json(self) -> dict[str, Any]:
        """Plain data with the schema's name."""
        return {"schema": SCHEMA, **asdict(self)}


def convert(composition: Composition, to: str, *, imported: Imported | None = None) -> Conversion:
    """Write the file of another framework for the same placement.

    Args:
        composition: the placement.
        to: a key of :data:`FORMATS`.
        imported: the file that the composition was read from; gives batch and number formats.

    Raises:
        IllFormed: the placement has no expression in that framework.
    """
    draft = _draft(composition, to, imported)
    body = _writer(to)(draft)
    source = repr(composition)
    world = draft.reading.world
    back = _read_back(draft, body, world // draft.elsewhere() if world else None)
    _accepted(draft, back)
    _compare(draft, read_degrees(back.composition))
    _compare_numbers(draft, back)
    return Conversion(
        to, source, _headed(to, body, source, draft), *_collected(draft), repr(back.composition)
    )


def _draft(composition: Composition, to: str, imported: Imported | None) -> Draft:
    if to not in FORMATS:
        names = ", ".join(FORMATS)
        raise IllFormed("--to", repr(to)[:40], f"the formats are {names}", "name one of them")
    draft = Draft(to, FORMATS[to].framework, read_degrees(composition))
    if imported is None:
        return draft
    draft.batch, draft.dtypes = imported.batch, imported.dtypes
    draft.tokens = _tokens(imported)
    for text in imported.undecided:
        draft.choose("sharding", "as in the composition", f"the source leaves it open: {text}")
    for text in imported.deviations:
        draft.choose("loop", "as derived", f"the source's own loop differs: {text}")
    return draft


def _tokens(imported: Imported) -> int | None:
    """Tokens of a sample, where the source says them."""
    for field in imported.fields:
        if field.name in ("seq_len", "sequence") and isinstance(field.value, int):
            return field.value if field.provenance == "literal" else None
    return None


def _writer(to: str) -> Callable[[Draft], str]:
    write: Callable[[Draft], str] = import_module(f"placement_proofs.configs.writers.{to}").write
    return write


def _read_back(draft: Draft, text: str, world: int | None) -> Imported:
    """What this package understands of the written file.

    Raises:
        IllFormed: it has no meaning to the format's importer.
    """
    from placement_proofs.configs import load

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"written{FORMATS[draft.format].suffix}"
        path.write_text(text, encoding="utf-8")
        try:
            return load(path, world=world, format=draft.format)
        except IllFormed as error:
            draft.refuse(error.found, f"{draft.name} refuses it: {error.rule}", error.remedy)


def _accepted(draft: Draft, back: Imported) -> None:
    """What the framework refuses is not written; what it ignores is lost.

    Raises:
        IllFormed: the framework refuses the placement, by the rules of its importer.
    """
    for finding in back.findings:
        rule = f"{draft.name} refuses it ({finding.source})"
        if finding.kind in ("rejected", "mathematics"):
            draft.refuse(finding.message, rule, finding.remedy)
        if finding.kind == "ignored":
            draft.losses.append(Loss(finding.rule, "ignored", finding.message))


def _compare(draft: Draft, back: Reading) -> None:
    """A role that reads back otherwise is lost, whether the writer knew it or not."""
    known = {loss.role for loss in draft.losses}
    own = draft.reading
    if "stage" in known and (own.replicate, own.shard) == (1, back.replicate):
        known |= {"replicate", "shard"}
    for role, first, value in differences(own, back):
        if role not in known:
            symbol = role == "micro" and isinstance(first, str)
            told = "the source leaves it open, the file comes to" if symbol else _BACK
            draft.lose(role, f"{told} {shown(value)}")


def _compare_numbers(draft: Draft, back: Imported) -> None:
    """Batch sizes and number formats that the source says and the file does not."""
    known = {loss.role for loss in draft.losses}
    for role, value, found in _numbers(draft, back):
        if value not in (None, found) and role not in known:
            told = "leaves it open" if found is None else f"reads back as {found}"
            draft.lose(role, f"the written file {told}", str(value))


def _numbers(draft: Draft, back: Imported) -> Iterator[tuple[str, object, object]]:
    own, other = draft.batch, back.batch
    yield "micro_batch", own.micro_batch, other.micro_batch
    if other.global_batch is not None and draft.elsewhere() == 1:
        yield "global_batch", own.global_batch, other.global_batch
    for field in (f for f in fields(draft.dtypes) if f.compare):
        first, second = getattr(draft.dtypes, field.name), getattr(back.dtypes, field.name)
        yield f"{field.name} format", first, second


def _collected(draft: Draft) -> tuple[tuple[Loss, ...], tuple[Chosen, ...]]:
    return tuple(draft.losses), tuple(dict.fromkeys(draft.chosen))


def _headed(to: str, body: str, source: str, draft: Draft) -> str:
    """The text below a comment that says where it comes from, where the format has comments."""
    if not FORMATS[to].comments:
        return body
    lines = [f"{source}", *(f"not carried: {loss}" for loss in draft.losses)]
    lines += [f"chosen: {choice}" for choice in dict.fromkeys(draft.chosen)]
    first, newline, rest = body.partition("\n")
    if first.startswith("#!"):
        return first + newline + commented(lines, rest)
    return commented(lines, body)
