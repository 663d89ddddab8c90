"""The one way in which a simulated program fails to run."""

from __future__ import annotations


class CannotRun(Exception):
    """A plan whose steps do not fit: a shape, a missing copy, a message that nobody sends."""
