"""The part of a page that recomputes: formulas, sliders, and the script that they need."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.resources import files
from typing import Any

from placement_proofs.checking import plan_of, without_norm
from placement_proofs.composition import Composition
from placement_proofs.cost.closed_form import ClosedForms, Form, closed_forms
from placement_proofs.cost.convention import Convention
from placement_proofs.cost.exports import alternatives, mathml
from placement_proofs.cost.symbols import symbol
from placement_proofs.errors import IllFormed
from placement_proofs.inputs import Subject
from placement_proofs.layout import sharded
from placement_proofs.model import Model
from placement_proofs.placement import EVERY, State
from placement_proofs.plan import Plan
from placement_proofs.render.page.markup import bullets, details, scrolling, tag, text
from placement_proofs.render.page.symbols import GROUPS, MOST, Knob, knobs
from placement_proofs.render.pictures.drawn import POSITIONS, TURNS
from placement_proofs.render.units import bytes_text
from placement_proofs.zoo import named

PSI, BYTES = "Psi", "P"
LONG = 400
"""Characters of a formula that stands in a row of its own, to be opened."""
INSIDE = (
    "One operation of Psi parameters stands for the whole network: what its layers exchange with "
    "each other is not counted."
)
WORDS = {"memory": "Memory of a rank", "communication": "Sent by a rank in a step"}


@dataclass(frozen=True)
class Variant:
    """The formulas of the subject on one model, with quotients and with ceilings."""

    key: str
    title: str
    note: str
    plan: Plan
    even: ClosedForms
    uneven: ClosedForms

    @cached_property
    def used(self) -> tuple[str, ...]:
        """The symbols that can be set."""
        forms = (form for forms in (self.even, self.uneven) for _, form in forms.forms())
        names = {s.name for form in forms for s in form.exact.free_symbols}
        if BYTES in names and PSI in self.even.known:
            names = (names - {BYTES}) | {PSI}
        return tuple(sorted(names))

    @cached_property
    def values(self) -> dict[str, int]:
        """A number for every symbol: what is known, small numbers for what is open."""
        loop = self.plan.micro
        open_ = {n: TURNS if n == loop else POSITIONS for n in self.used}
        return {n: self.even.known.get(n, open_[n]) for n in self.used}

    @cached_property
    def knobs(self) -> list[Knob]:
        return knobs(self.plan, self.even, self.values, self.used)


def variants(subject: Subject, widths: Convention) -> list[Variant]:
    """The formulas on the subject's model and, where it has a plan there, on the abstract one.

    Raises:
        IllFormed: the subject is an element program, or a symbol of it names a size of the model.
    """
    composition, model = subject.composed()
    found = [_variant("own", f"model {model.name}", "", subject, widths)]
    abstract = _abstract(composition, model.micro_batch)
    if model.name != "abstract" and abstract is not None:
        inside = any(flow.input != sharded(0) for flow in composition.placement.flows)
        other = replace(subject, model=abstract)
        try:
            title = "any model of Psi parameters"
            found.append(_variant("psi", title, INSIDE if inside else "", other, widths))
        except IllFormed:
            pass
    return found


def _abstract(composition: Composition, micro_batch: int) -> Model | None:
    """The model of Psi parameters, if every strategy that places parameters places those.

    Its activations divide over the axes that cut something else than the batch.
    """
    model = named("abstract")
    assert model is not None
    groups = {EVERY, *(t.group for t in model.tensors)}
    for strategy in composition.strategies:
        own = {p.group for p in strategy.placement.places if p.state is State.PARAMETERS}
        if own and not own & groups:
            return None
    sizes = composition.mesh.sizes()
    cuts = [sizes[f.axis] for f in composition.placement.flows if f.input != sharded(0)]
    parts = math.prod(size for size in cuts if isinstance(size, int))
    dims = {**model.dims, "A": model.dims["A"] * parts}
    return replace(model, dims=dims, micro_batch=micro_batch)


def _variant(key: str, title: str, note: str, subject: Subject, widths: Convention) -> Variant:
    plan, model = plan_of(subject, clipping=bool(subject.deviations))
    plan = without_norm(plan)
    even, uneven = (closed_forms(plan, model, widths, divides=d) for d in (True, False))
    return Variant(key, title, note, plan, even, uneven)


# --- markup --------------------------------------------------------------------------


def play(found: Sequence[Variant], convention: Convention) -> str:
    """Controls and tables."""
    shown = [_controls(found), *(_tables(v, first=v is found[0]) for v in found)]
    said = tag("p", text(f"{convention}. Source: {convention.source}."), class_="faint")
    status = tag("p", "", id="status", role="status", class_="hidden")
    return "".join([said, *shown, status])


def _controls(found: Sequence[Variant]) -> str:
    groups = []
    for group, legend in GROUPS.items():
        rows = [
            _knob(knob, [v.key for v in found if name in v.used], found[0].key)
            for name, knob in _knobs(found).items()
            if knob.group == group
        ]
        if rows:
            groups.append(tag("fieldset", tag("legend", text(legend)) + "".join(rows)))
    choice = _choice(found) if len(found) > 1 else ""
    hint = "right where sizes do not divide; the formulas shown are for sizes that do"
    rounding = tag(
        "label",
        f"{tag('input', type='checkbox', id='uneven')} Round parts up: {text(hint)}",
        class_="check",
    )
    reset = tag("button", "Reset", type="reset")
    return tag("form", [choice, *groups, tag("p", rounding + reset)], id="controls")


def _knobs(found: Sequence[Variant]) -> dict[str, Knob]:
    """The knobs by name; of those that several variants have, the first one's."""
    known: dict[str, Knob] = {}
    for knob in (knob for variant in found for knob in variant.knobs):
        known.setdefault(knob.name, knob)
    return known


def _choice(found: Sequence[Variant]) -> str:
    radios = (
        tag(
            "label",
            tag("input", type="radio", name="variant", value=v.key, checked=v is found[0])
            + text(f" {v.title}"),
            class_="check",
        )
        for v in found
    )
    return tag("fieldset", [tag("legend", "Formulas of"), *radios])


def _knob(knob: Knob, keys: Sequence[str], first: str) -> str:
    index = knob.stops.index(knob.value)
    label = tag("label", f"{_math_name(knob.name)} {text(knob.meaning)}", for_=f"n-{knob.name}")
    slider = tag(
        "input",
        type="range",
        id=f"r-{knob.name}",
        min=0,
        max=len(knob.stops) - 1,
        value=index,
        aria_label=f"{knob.name}, {knob.meaning}: slider",
        aria_valuetext=f"{knob.value:,}",
        data_symbol=knob.name,
    )
    number = tag(
        "input",
        type="number",
        id=f"n-{knob.name}",
        min=knob.least,
        max=MOST,
        step=1,
        value=knob.value,
        required=True,
        inputmode="numeric",
        data_symbol=knob.name,
        aria_describedby=f"e-{knob.name}",
    )
    error = tag("span", "", id=f"e-{knob.name}", class_="error")
    return tag(
        "div",
        label + slider + number + error,
        class_="knob",
        data_of=" ".join(keys),
        hidden=first not in keys,
    )


def _math_name(name: str) -> str:
    return mathml(symbol(name))


def _tables(variant: Variant, *, first: bool) -> str:
    numbers = variant.even.numbers({n: v for n, v in variant.values.items() if n != BYTES})
    parts = []
    for kind, title in WORDS.items():
        rows = [
            _row(variant, name, form, numbers[name].bytes, kind)
            for name, form in variant.even.forms()
            if name.startswith(kind)
        ]
        heads = ("part", "now", "share", "formula, in bytes")
        head = tag("thead", tag("tr", [tag("th", text(h), scope="col") for h in heads]))
        caption = tag("caption", text(title))
        whole = tag("table", [caption, head, tag("tbody", rows)], class_="forms")
        parts.append(scrolling(whole, f"{title}, {variant.title}"))
    where = variant.even.position
    said = f"Formulas of {variant.title}"
    said += "." if where == "only" else f", pipeline position {where}."
    return tag(
        "div",
        [tag("p", text(f"{said} {variant.note}".strip())), *parts],
        class_="variant",
        data_variant=variant.key,
        hidden=not first,
    )


def _row(variant: Variant, name: str, form: Form, count: Any, kind: str) -> str:
    total = name in ("memory_persistent", "memory_peak", "communication_total")
    output = tag(
        "output", text(bytes_text(count)), data_form=f"{variant.key}:{name}", data_kind=kind
    )
    exact = tag("span", "", class_="exact")
    bar = tag("div", tag("div", ""), class_="bar", aria_hidden="true")
    cells = [tag("th", text(_label(form.name)), scope="row")]
    cells += [tag("td", output + exact, class_="count"), tag("td", bar)]
    cells.append(tag("td", _formula(form), class_="formulas"))
    return tag("tr", cells, class_="total" if total else None)


def _formula(form: Form) -> str:
    """The exact form, and the one that it comes near where that is another."""
    exact = _exact(form)
    if len(str(form.exact)) > LONG:
        return details("a long formula", exact)
    if form.asymptotic == form.exact or len(str(form.asymptotic)) > LONG // 2:
        return exact
    return exact + tag("div", f"~ {mathml(form.asymptotic)}", class_="formula faint")


def _exact(form: Form) -> str:
    """A formula; the alternatives of a maximum as a list."""
    found = alternatives(form.exact)
    if found is None:
        return tag("div", mathml(form.exact), class_="formula")
    rest, most = found
    head = f"{mathml(rest)} plus the largest of" if rest != 0 else "the largest of"
    items = bullets(tag("span", mathml(value), class_="formula") for value in most)
    return tag("div", head, class_="formula") + items


def _label(name: str) -> str:
    return {"persistent": "between steps", "peak": "peak of a step"}.get(name, name)


# --- script --------------------------------------------------------------------------


def data(found: Sequence[Variant]) -> dict[str, Any]:
    """What the script needs beside the formulas: stops, first values, derived symbols."""
    known = _knobs(found)
    return {
        "stops": {name: [str(n) for n in knob.stops] for name, knob in known.items()},
        "values": {name: str(knob.value) for name, knob in known.items()},
        "derived": {v.key: _derived(v) for v in found},
        "most": str(MOST),
    }


def _derived(variant: Variant) -> dict[str, list[Any]]:
    """Symbols that follow from another one: bytes of all parameters."""
    if PSI in variant.used:
        return {BYTES: [PSI, variant.even.convention.parameter]}
    return {}


def script(found: Sequence[Variant]) -> str:
    """The script of the page, with the formulas as functions of the symbols."""
    formulas = "".join(_functions(v) for v in found)
    runtime = files("placement_proofs.render.page").joinpath("page.js").read_text(encoding="utf-8")
    return runtime.replace("/*FORMULAS*/", f"\n{formulas}")


def _functions(variant: Variant) -> str:
    sets: Mapping[str, ClosedForms] = {"even": variant.even, "uneven": variant.uneven}
    lines = []
    for key, forms in sets.items():
        for name, form in forms.forms():
            label = json.dumps(f"{variant.key}:{key}:{name}")
            lines.append(f"  {label}: (v) => {form.to_javascript()},\n")
    return "".join(lines)
