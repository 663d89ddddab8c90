"""Checks as SARIF 2.1.0 (OASIS), for code-scanning services: results with files and lines."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

from placement_proofs.errors import IllFormed
from placement_proofs.render.findings import other_warnings
from placement_proofs.report import Report
from placement_proofs.verdict import Verdict

Checked: TypeAlias = tuple[str, Report | IllFormed]
"""A subject as it was given, with what came of it."""

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS: Mapping[str, str] = {
    "mathematics": "error",
    "rejected": "error",
    "ignored": "warning",
    "unlikely": "note",
}
_MEANINGS: Mapping[str, str] = {
    "mathematics": "the job trains wrongly",
    "rejected": "the framework refuses this",
    "ignored": "the framework silently ignores this",
    "unlikely": "probably not what was meant",
}
_PLACE = re.compile(r"(?P<file>.+?):(?P<line>[1-9][0-9]*)(?: (?P<key>.*))?\Z", re.DOTALL)
_LINE = re.compile(r"\bline ([1-9][0-9]{0,8})\b")


@dataclass(frozen=True)
class Rule:
    """A rule of the tool; ``help`` names its source."""

    id: str
    name: str
    level: str
    help: str

    def to_json(self) -> dict[str, Any]:
        """A ``reportingDescriptor``."""
        return {
            "id": self.id,
            "name": _pascal(self.name),
            "shortDescription": {"text": self.name},
            "fullDescription": {"text": self.help},
            "help": {"text": self.help},
            "defaultConfiguration": {"level": self.level},
        }


@dataclass(frozen=True)
class Result:
    """One line of the answer: a rule, what was found, and where."""

    rule: Rule
    level: str
    message: str
    subject: str
    file: str
    line: int | None
    key: str


def sarif(checked: Sequence[Checked], version: str) -> dict[str, Any]:
    """A SARIF log with one run; ``version`` is that of this package."""
    found = [result for subject, answer in checked for result in _results(subject, answer)]
    rules = list({result.rule.id: result.rule for result in reversed(found)}.values())[::-1]
    index = {rule.id: i for i, rule in enumerate(rules)}
    driver = {
        "name": "placement-proofs",
        "version": version,
        "rules": [rule.to_json() for rule in rules],
    }
    run = {
        "tool": {"driver": driver},
        "invocations": [{"executionSuccessful": True}],
        "columnKind": "unicodeCodePoints",
        "results": [_result(result, index) for result in found],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _results(subject: str, answer: Report | IllFormed) -> Iterator[Result]:
    if isinstance(answer, IllFormed):
        yield _ill_formed(subject, answer)
        return
    yield from _verdict(subject, answer)
    source = answer.source or {}
    for finding in source.get("findings", ()):
        yield _finding(subject, str(source["format"]), finding)
    rule = Rule("advice", "advice", "note", "The placement is right; a part has no effect.")
    for text in other_warnings(answer.warnings, answer.source):
        yield Result(rule, "note", text, subject, _file(subject), 1, "")


def _ill_formed(subject: str, error: IllFormed) -> Result:
    rule = Rule("ill-formed", "ill-formed input", "error", "The input has no meaning.")
    file, line, key = _located(subject, error.place)
    said = _LINE.search(f"{error.place} {error.found}")
    if file and line == 1 and said:
        line = int(said[1])
    text = f"found {error.found}; {error.rule}; {error.remedy}"
    return Result(rule, "error", text if key else str(error), subject, file, line, key)


def _verdict(subject: str, report: Report) -> Iterator[Result]:
    """A refutation or an open question as a result of its own, at the file."""
    place = next((f["place"] for f in _mathematics(report)), "")
    file, line, key = _located(subject, place)
    for name, condition in report.conditions.items():
        words = name.replace("_", " ")
        text = f"{words} {condition.verdict.value} for {report.subject}"
        reason = f": {condition.reason}" if condition.reason else ""
        if condition.verdict is Verdict.REFUTED:
            rule = Rule(f"refuted/{_slug(words)}", f"{words} refuted", "error", _refuted(words))
            yield Result(rule, "error", text + _shown(report, name), subject, file, line, key)
        elif condition.verdict is Verdict.UNKNOWN:
            rule = Rule(f"unknown/{_slug(words)}", f"{words} unknown", "warning", _unknown(words))
            yield Result(rule, "warning", text + reason, subject, file, line, key)


def _mathematics(report: Report) -> list[Mapping[str, Any]]:
    findings = (report.source or {}).get("findings", ())
    return [finding for finding in findings if finding["kind"] == "mathematics"]


def _refuted(words: str) -> str:
    return f"A counterexample to {words} was replayed exactly: the ranks train unlike one device."


def _unknown(words: str) -> str:
    return f"Nothing was decided about {words}; unknown never passes."


def _shown(report: Report, condition: str) -> str:
    """The counterexample's tensors and values, where they are of this condition."""
    failure = report.failure
    if failure is None or failure.condition != condition:
        return ""
    tensors = ", ".join(failure.members[:4])
    found = failure.counterexample
    return f": {tensors or failure.about} is {found.get('got')}, not {found.get('expected')}"


def _finding(subject: str, format: str, finding: Mapping[str, Any]) -> Result:
    kind, name = str(finding["kind"]), str(finding["rule"])
    level = LEVELS[kind]
    text = f"{_MEANINGS[kind].capitalize()}. Source: {finding['source']}."
    rule = Rule(f"{format}/{_slug(name)}", name, level, text)
    file, line, key = _located(subject, str(finding["place"]))
    message = f"{finding['message']}; {finding['remedy']} [{kind}; {finding['source']}]"
    return Result(rule, level, message, subject, file, line, key)


def _located(subject: str, place: str) -> tuple[str, int | None, str]:
    """File, line and key of a place ``file:line key``; places name a file without its folder."""
    file = _file(subject)
    found = _PLACE.match(place)
    if not file or found is None:
        return file, 1 if file else None, ""
    name = found["file"]
    beside = Path(file).parent / name
    inside = name == file or Path(file).name == name
    there = file if inside else beside.as_posix() if _is_file(beside) else file
    return there, int(found["line"]) if inside or there != file else 1, found["key"] or ""


def _file(subject: str) -> str:
    """A subject that is a file, as a path; empty for an expression."""
    suffixed = "(" not in subject and Path(subject).suffix != ""
    return Path(subject).as_posix() if suffixed or _is_file(Path(subject)) else ""


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _result(result: Result, index: Mapping[str, int]) -> dict[str, Any]:
    value: dict[str, Any] = {
        "ruleId": result.rule.id,
        "ruleIndex": index[result.rule.id],
        "level": result.level,
        "message": {"text": result.message},
        "locations": [_location(result)],
        "partialFingerprints": {"placementProofs/v1": _fingerprint(result)},
    }
    return value


def _location(result: Result) -> dict[str, Any]:
    name = result.key or (result.subject if not result.file else "")
    logical = {"logicalLocations": [{"fullyQualifiedName": name}]} if name else {}
    if not result.file:
        return logical
    physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(result.file)}}
    if result.line is not None:
        physical["region"] = {"startLine": result.line}
    return {"physicalLocation": physical, **logical}


def _uri(file: str) -> str:
    """Relative to the folder of the run where the file is inside it, else absolute."""
    path = Path(file)
    if path.is_absolute():
        here = Path.cwd()
        if not path.is_relative_to(here):
            return path.as_uri()
        path = path.relative_to(here)
    return quote(path.as_posix(), safe="/")


def _fingerprint(result: Result) -> str:
    """The same for the same fault on another line."""
    parts: Iterable[str] = (result.rule.id, result.file, result.key, result.message)
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:32]


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _pascal(text: str) -> str:
    return "".join(word.capitalize() for word in re.findall(r"[A-Za-z0-9]+", text))
