"""HTML as text: every value is escaped, nothing is evaluated."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape

VOID = ("input", "meta", "link", "br")


def text(value: object) -> str:
    """A text for a page: escaped, without control characters."""
    shown = "".join(c if c.isprintable() or c in "\n\t" else "?" for c in str(value))
    return escape(shown, quote=True)


def tag(name: str, inside: str | Iterable[str] = "", /, **attributes: object) -> str:
    """An element around markup; ``class_`` is ``class``, ``_`` is ``-``, ``None`` is left out.

    >>> tag("a", text("<b>"), href="#x", aria_label='a "b"')
    '<a href="#x" aria-label="a &quot;b&quot;">&lt;b&gt;</a>'
    """
    parts = [name]
    for key, value in attributes.items():
        known = key.rstrip("_").replace("_", "-")
        if value is True:
            parts.append(known)
        elif value is not None and value is not False:
            parts.append(f'{known}="{text(value)}"')
    opened = f"<{' '.join(parts)}>"
    body = inside if isinstance(inside, str) else "".join(inside)
    return opened if name in VOID else f"{opened}{body}</{name}>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str) -> str:
    """A table of markup; the first cell of a row is its header. It scrolls where it is too wide."""
    heads = "".join(tag("th", text(h), scope="col") for h in head)
    body = (
        tag("tr", [tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:])])
        for row in rows
    )
    top = tag("thead", tag("tr", heads)) if head else ""
    whole = tag("table", [tag("caption", text(caption)), top, tag("tbody", body)])
    return scrolling(whole, caption)


def scrolling(inside: str, name: str) -> str:
    """A region that scrolls sideways, also by keyboard."""
    return tag("div", inside, class_="wide", role="region", aria_label=name, tabindex=0)


def bullets(items: Iterable[str]) -> str:
    """A list of markup; nothing without items."""
    found = [tag("li", item) for item in items]
    return tag("ul", found) if found else ""


def section(title: str, body: str, name: str) -> str:
    """A section with a heading; nothing where the body is empty."""
    if not body:
        return ""
    heading = tag("h2", text(title), id=f"{name}-title")
    return tag("section", heading + body, id=name, aria_labelledby=f"{name}-title")


def details(summary: str, body: str) -> str:
    """Something that opens when asked for."""
    return tag("details", tag("summary", text(summary)) + body) if body else ""


def data_script(value: object, name: str) -> str:
    """Data for a script; no text in it can end the element or begin another."""
    shown = json.dumps(value, ensure_ascii=True, sort_keys=True)
    for character in "<>&":
        shown = shown.replace(character, f"\\u{ord(character):04x}")
    return f'<script type="application/json" id="{text(name)}">{shown}</script>'
