"""Colour and weight of words, for terminals."""

from __future__ import annotations

from dataclasses import dataclass

from placement_proofs.verdict import Verdict

_CODES = {
    Verdict.PROVED: "1;32",
    Verdict.REFUTED: "1;31",
    Verdict.UNKNOWN: "1;33",
    Verdict.ILL_FORMED: "1;31",
    Verdict.NOT_APPLICABLE: "2",
}


@dataclass(frozen=True)
class Paint:
    """Marks words with colour, or leaves them plain."""

    colour: bool = False

    def verdict(self, verdict: Verdict, text: str = "") -> str:
        """A verdict's word, or ``text``, in the verdict's colour."""
        return self._coded(text or verdict.value, _CODES[verdict])

    def strong(self, text: str) -> str:
        """A heading."""
        return self._coded(text, "1")

    def faint(self, text: str) -> str:
        """Words that most readers skip."""
        return self._coded(text, "2")

    def _coded(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and text else text


PLAIN = Paint()
