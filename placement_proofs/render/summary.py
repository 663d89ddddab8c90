"""Several checks at once: one line for each, then how many got which verdict."""

from __future__ import annotations

from collections.abc import Sequence

from placement_proofs.render.paint import PLAIN, Paint
from placement_proofs.render.report import summary_text
from placement_proofs.render.table import columns
from placement_proofs.verdict import Verdict, combine

LONGEST = 72


def summary(rows: Sequence[tuple[str, Verdict, str]], paint: Paint = PLAIN) -> str:
    """Verdict, subject and findings of each check, the exit code that follows, and the counts."""
    verdicts = [verdict for _, verdict, _ in rows]
    title = paint.strong(f"summary, exit code {combine(verdicts).exit_code}")
    table = columns((paint.verdict(verdict), _cut(text), more) for text, verdict, more in rows)
    return f"{title}\n{table}\n{summary_text(verdicts, paint)}"


def _cut(subject: str) -> str:
    return subject if len(subject) <= LONGEST else subject[: LONGEST - 3] + "..."
