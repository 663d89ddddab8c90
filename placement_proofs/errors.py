"""The one error that a user can cause."""

from __future__ import annotations


class IllFormed(ValueError):
    """An input that has no meaning: it is rejected before anything is computed.

    `place` says where it was found, `found` what is there, `rule` the rule that it
    breaks and why, `remedy` what to write instead.
    """

    def __init__(self, place: str, found: str, rule: str, remedy: str) -> None:
        super().__init__(place, found, rule, remedy)
        self.place = place
        self.found = found
        self.rule = rule
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.place}: found {self.found}; {self.rule}; {self.remedy}"
