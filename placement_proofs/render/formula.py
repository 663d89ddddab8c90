"""Closed forms as text, LaTeX, JSON or Python, all of them or those of one kind."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from placement_proofs.render.paint import PLAIN, Paint
from placement_proofs.render.table import columns, paragraph, section, sections
from placement_proofs.render.units import amount, seconds_text

if TYPE_CHECKING:
    from fractions import Fraction

    from placement_proofs.cost.closed_form import ClosedForms, Form
    from placement_proofs.cost.terms import Term
    from placement_proofs.cost.units import Amount, Seconds

SCHEMA = "placement-proofs/formula/1"

TITLES = {
    "memory": "memory of a rank, in bytes",
    "communication": "sent by a rank in a step, in bytes",
    "time": "time of that traffic, in seconds: latency alpha of a step, bandwidth beta of a rank",
}
LONGEST = 240
"""Characters of a formula that the text shows whole."""

Named = tuple[str, "Form"]
Numbers = Mapping[str, "Amount | Seconds"]


def chosen(forms: ClosedForms, kinds: Sequence[str]) -> list[Named]:
    """The forms of some kinds (``memory``, ``communication``), by their Python names."""
    return [(name, form) for name, form in forms.forms() if name.partition("_")[0] in kinds]


def formula_json(
    subject: str, forms: ClosedForms, named: Sequence[Named], numbers: Numbers
) -> dict[str, Any]:
    """Forms as plain data; formulas are texts."""
    parts = {name: form.to_json() for name, form in named}
    values = {name: numbers[name].to_json() for name, _ in named if name in numbers}
    data = {"schema": SCHEMA, "composition": subject, **forms.to_json()}
    return data | {"forms": parts, "numbers": values}


def formula_latex(named: Sequence[Named]) -> str:
    """An ``align*`` environment."""
    rows = [rf"\text{{{_plain(form.name)}}} &= {form.latex}" for _, form in named]
    return "\\begin{align*}\n" + " \\\\\n".join(rows) + "\n\\end{align*}"


def _plain(text: str) -> str:
    """Text without what LaTeX takes for mathematics."""
    return "".join(f"\\{c}" if c in "_#%&$" else c for c in text)


def formula_csv(named: Sequence[Named], numbers: Numbers) -> str:
    """A table with a header: name, exact and asymptotic form, a number where sizes are known.

    Without times, the number's column is ``bytes``; with them, ``unit`` says what it is.
    """
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    timed = any(form.unit != "bytes" for _, form in named)
    rows.writerow(("name", "exact", "asymptotic", *(("number", "unit") if timed else ("bytes",))))
    for name, form in named:
        found = numbers.get(name)
        held = "" if found is None else found.to_json()[form.unit]
        last = (form.unit,) if timed else ()
        rows.writerow((name, str(form.exact), str(form.asymptotic), held, *last))
    return out.getvalue().rstrip("\n")


def formula_python(forms: ClosedForms, named: Sequence[Named]) -> str:
    """A module with one function for each form."""
    parts = [form.to_python(name).partition("\n\n\n") for name, form in named]
    head = parts[0][0]
    return "\n\n".join([f'"""{forms.convention}."""\n\n{head}\n', *(body for _, _, body in parts)])


def formula_text(
    title: str,
    forms: ClosedForms,
    named: Sequence[Named],
    numbers: Numbers,
    *,
    values: Mapping[str, int] | None = None,
    terms: bool = False,
    paint: Paint = PLAIN,
) -> str:
    """Each form with its leading term, and its number where all symbols have values.

    ``values`` are those given beside what is known.
    """
    parts = [f"{title}\n{paint.faint(paragraph(str(forms.convention), indent=0))}"]
    for kind, heading in TITLES.items():
        of_kind = [(name, form) for name, form in named if name.startswith(kind)]
        lines = [line for name, form in of_kind for line in _form(name, form, numbers, terms)]
        parts.append(section(paint.strong(heading), "\n".join(lines)))
    return sections([*parts, _where(forms.values(values or {}), named)])


def _where(values: Mapping[str, int | Fraction], named: Sequence[Named]) -> str:
    """The values of the symbols that are shown, as far as they are known."""
    used = {name for _, form in named for name in form.symbols}
    told = [f"{name} = {float(values[name]):,.12g}" for name in sorted(used & values.keys())]
    return paragraph(f"where {', '.join(told)}", indent=0, hanging=2) if told else ""


def _form(name: str, form: Form, numbers: Numbers, terms: bool) -> Iterator[str]:
    exact, leading = str(form.exact), str(form.asymptotic)
    yield f"  {form.name} = {_short(exact, name)}"
    if leading != exact:
        yield f"    ~ {_short(leading, name)}"
    if name in numbers:
        yield f"    = {_shown(numbers[name], form.unit)}"
    if terms:
        yield columns([_term(term) for term in form.terms], indent=6)


def _shown(found: Amount | Seconds, unit: str) -> str:
    value = found.to_json()[unit]
    return amount(value) if unit == "bytes" else seconds_text(value)


def _short(text: str, name: str) -> str:
    if len(text) <= LONGEST:
        return text
    return f"a formula of {len(text):,} characters: {name} in --format json, latex or python"


def _term(term: Term[Any]) -> tuple[str, str, str]:
    names = term.names[0] if term.names else ""
    more = f" and {len(term.names) - 1} more" if len(term.names) > 1 else ""
    when = f" ({term.phase})" if term.phase else ""
    return _short(str(term.bytes), "it"), f"{names}{more}", f"{term.why}{when}"
