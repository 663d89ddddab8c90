"""Pictures as SVG text: a sheet to draw on, and the finished picture.

Every picture has a title and a text alternative, an explicit background, and labels or hatching
wherever it has colour. Lengths are in pixels of the view box.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from placement_proofs.render.hatch import HATCHES, Hatch

SIZE = 12.0
"""Height of the usual font."""
FONTS = "system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', 'Liberation Sans', sans-serif"
INK = "#1a1a1a"
FAINT = "#595959"
PAPER = "#ffffff"
RULE = "#b3b3b3"
MARGIN = 16.0

_NARROW = frozenset("iljftI.,:;'|!()[]{} /-·")
_WIDE = frozenset("mwMW@%…→")


def text_width(text: str, size: float = SIZE, *, bold: bool = False) -> float:
    """An upper estimate of the width of a text in any of the fonts (pixels)."""
    em = sum(0.42 if c in _NARROW else 1.0 if c in _WIDE else 0.66 for c in text)
    return em * size * (1.08 if bold else 1.0)


def fitted(text: str, width: float, size: float = SIZE, *, bold: bool = False) -> str:
    """``text`` if it fits in ``width`` pixels, else its beginning and end with "…" between.

    >>> fitted("layers.attention.output.weight", 100)
    'layers…eight'
    """
    if text_width(text, size, bold=bold) <= width:
        return text
    for kept in range(len(text) - 1, 0, -1):
        head, tail = kept - kept // 2, kept // 2
        short = f"{text[:head]}…{text[len(text) - tail :] if tail else ''}"
        if text_width(short, size, bold=bold) <= width:
            return short
    return "…"


def wrapped(text: str, width: float, size: float = SIZE) -> list[str]:
    """Lines of at most ``width`` pixels, cut at spaces; longer words are shortened."""
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(longer, size) <= width:
            lines[-1] = longer
        else:
            lines.append(fitted(word, width, size))
    return lines


def number_text(value: float) -> str:
    """A coordinate with at most two decimals.

    >>> number_text(2.50)
    '2.5'
    """
    return f"{value:.2f}".rstrip("0").rstrip(".")


def element(name: str, attributes: Mapping[str, object], inside: str | None = None) -> str:
    """One element; numbers are shortened, texts escaped, ``_`` in names becomes ``-``."""
    parts = [name, *(f'{_dashed(k)}="{_value(v)}"' for k, v in attributes.items() if v is not None)]
    opened = " ".join(parts)
    return f"<{opened}/>" if inside is None else f"<{opened}>{inside}</{name}>"


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _value(value: object) -> str:
    return number_text(value) if isinstance(value, int | float) else escape(printable(str(value)))


def printable(text: str) -> str:
    """Text without the characters that XML does not allow."""
    return "".join(c if c.isprintable() or c == " " else "?" for c in text)


@dataclass(frozen=True)
class Picture:
    """A drawn picture.

    Attributes:
        title: what it shows, in one line.
        alternative: what one sees in it, in words.
        width: of the view box (pixels).
        height: of the view box (pixels).
        body: the elements, in order of drawing.
        data: what was drawn, as plain data.
    """

    title: str
    alternative: str
    width: float
    height: float
    body: tuple[str, ...]
    data: Mapping[str, Any]

    @property
    def svg(self) -> str:
        """The whole SVG document; it stands alone or inside of a page."""
        attributes = {
            "xmlns": "http://www.w3.org/2000/svg",
            "role": "img",
            "aria-label": f"{self.title}. {self.alternative}",
            "viewBox": f"0 0 {number_text(self.width)} {number_text(self.height)}",
            "width": self.width,
            "height": self.height,
            "font-family": FONTS,
            "font-size": SIZE,
            "fill": INK,
        }
        parts = [
            f"<title>{escape(printable(self.title))}</title>",
            f"<desc>{escape(printable(self.alternative))}</desc>",
            element("rect", {"width": self.width, "height": self.height, "fill": PAPER}),
            *self.body,
        ]
        return element("svg", attributes, "\n" + "\n".join(parts) + "\n") + "\n"

    def __repr__(self) -> str:
        return f"Picture({self.title!r})"

    def _repr_svg_(self) -> str:
        """What a notebook shows."""
        return self.svg


@dataclass
class Sheet:
    """A sheet to draw on; ``right`` and ``low`` are the furthest that anything reaches."""

    title: str
    body: list[str] = field(default_factory=list)
    right: float = 0.0
    low: float = 0.0

    def _reach(self, x: float, y: float) -> None:
        self.right, self.low = max(self.right, x), max(self.low, y)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = SIZE,
        anchor: str = "start",
        bold: bool = False,
        fill: str | None = None,
        room: float | None = None,
        halo: bool = False,
    ) -> None:
        """A line of text whose baseline starts, is centred or ends at (x, y).

        With ``room`` it is shortened to so many pixels, and the whole text is its tooltip; a
        ``halo`` keeps it legible on hatching.
        """
        shown = text if room is None else fitted(text, room, size, bold=bold)
        tip = "" if shown == text else f"<title>{escape(printable(text))}</title>"
        wide = text_width(shown, size, bold=bold)
        share = {"start": 1.0, "middle": 0.5, "end": 0.0}[anchor]
        self._reach(x + wide * share, y + size * 0.3)
        attributes = {
            "x": x,
            "y": y,
            "font_size": None if size == SIZE else size,
            "text_anchor": None if anchor == "start" else anchor,
            "font_weight": "bold" if bold else None,
            "fill": fill,
            "stroke": PAPER if halo else None,
            "stroke_width": 4 if halo else None,
            "stroke_linejoin": "round" if halo else None,
            "paint_order": "stroke" if halo else None,
        }
        self.body.append(element("text", attributes, tip + escape(printable(shown), quote=False)))

    def labelled(self, x: float, y: float, label: str, text: str, *, room: float) -> None:
        """A bold label and a text behind it on one line, the text shortened to what is left."""
        wide = text_width(label, bold=True) + SIZE * 0.6
        shown = fitted(text, room - wide)
        tip = "" if shown == text else f"<title>{escape(printable(text))}</title>"
        self._reach(x + wide + text_width(shown), y + SIZE * 0.3)
        bold = element("tspan", {"font_weight": "bold"}, escape(printable(label), quote=False))
        inside = f"{tip}{bold}\u2002{escape(printable(shown), quote=False)}"
        self.body.append(element("text", {"x": x, "y": y}, inside))

    def turned(self, x: float, y: float, text: str, *, room: float, size: float = 11) -> None:
        """A text centred at (x, y) that reads upwards, shortened to ``room`` pixels."""
        shown = fitted(text, room, size)
        tip = "" if shown == text else f"<title>{escape(printable(text))}</title>"
        attributes = {
            "x": x,
            "y": y,
            "font_size": size,
            "text_anchor": "middle",
            "transform": f"rotate(-90 {number_text(x)} {number_text(y)})",
        }
        self.body.append(element("text", attributes, tip + escape(printable(shown), quote=False)))

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        fill: str = "none",
        stroke: str | None = INK,
        dash: str | None = None,
        thick: float = 1.0,
        tip: str = "",
    ) -> None:
        """A rectangle; ``fill`` is a colour or the name of a hatching."""
        self._reach(x + width, y + height)
        hatch = HATCHES.get(fill)
        attributes = {
            "x": x,
            "y": y,
            "width": width,
            "height": height,
            "fill": fill if hatch is None else hatch.ground,
            "stroke": stroke,
            "stroke_width": thick if stroke and thick != 1 else None,
            "stroke_dasharray": dash,
        }
        title = f"<title>{escape(printable(tip))}</title>" if tip else None
        self.body.append(element("rect", attributes, title))
        if hatch is not None and min(width, height) > 2:
            self._strokes(hatch, x + 1, y + 1, width - 2, height - 2)

    def _strokes(self, hatch: Hatch, x: float, y: float, width: float, height: float) -> None:
        attributes = {
            "d": hatch.path(x, y, width, height),
            "stroke": hatch.stroke,
            "stroke_width": hatch.thick,
            "stroke_linecap": "round",
            "pointer_events": "none",
        }
        self.body.append(element("path", attributes))

    def line(
        self,
        points: Sequence[tuple[float, float]],
        *,
        stroke: str = INK,
        thick: float = 1.0,
        dash: str | None = None,
        arrow: bool = False,
    ) -> None:
        """A line through points; with ``arrow``, a head at its end (pointing right or down)."""
        for x, y in points:
            self._reach(x, y)
        attributes = {
            "points": " ".join(f"{number_text(x)},{number_text(y)}" for x, y in points),
            "fill": "none",
            "stroke": stroke,
            "stroke_width": thick if thick != 1 else None,
            "stroke_dasharray": dash,
        }
        self.body.append(element("polyline", attributes))
        if arrow:
            self._head(points[-2], points[-1], stroke)

    def _head(self, start: tuple[float, float], end: tuple[float, float], fill: str) -> None:
        x, y = end
        across = abs(end[0] - start[0]) >= abs(end[1] - start[1])
        back = ((x - 7, y - 4), (x - 7, y + 4)) if across else ((x - 4, y - 7), (x + 4, y - 7))
        points = " ".join(f"{number_text(a)},{number_text(b)}" for a, b in (end, *back))
        self.body.append(element("polygon", {"points": points, "fill": fill}))

    def lines(
        self, x: float, y: float, text: str, room: float, *, size: float = SIZE, fill: str = FAINT
    ) -> float:
        """A paragraph; returns the baseline below it."""
        for line in wrapped(text, room, size):
            self.text(x, y, line, size=size, fill=fill)
            y += size * 1.4
        return y

    def heading(self, text: str, room: float) -> float:
        """The title at the top; returns the baseline below it."""
        y = MARGIN + 14
        for line in wrapped(text, room / 1.08, 15):
            self.text(MARGIN, y, line, size=15, bold=True)
            y += 20
        return y

    def finished(self, alternative: str, data: Mapping[str, Any]) -> Picture:
        """The picture, with a margin around everything."""
        wide, high = self.right + MARGIN, self.low + MARGIN
        return Picture(self.title, alternative, wide, high, tuple(self.body), data)
