"""Blocks of a Markdown page, run: consoles show the real output, Python is a doctest."""

import doctest
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from conftest import ROOT

BLOCK = re.compile(r"^```(\S*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
LEFT_OUT = "\n...\n"
"""A line of three dots stands for any lines of the output."""


@dataclass(frozen=True)
class Page:
    """A Markdown file."""

    path: Path

    def __str__(self):
        return str(self.path.relative_to(ROOT))

    @property
    def text(self):
        return self.path.read_text()

    def blocks(self, language):
        return [text for kind, text in BLOCK.findall(self.text) if kind == language]

    def languages(self):
        return {kind for kind, _ in BLOCK.findall(self.text)}

    def commands(self):
        return [found for block in self.blocks("console") for found in COMMAND.findall(block)]


def output(run, command):
    """What a command of a console block prints: of ``placement-proofs``, ``cat`` or ``echo``."""
    program, *arguments = shlex.split(command)
    if program == "cat":
        return Path(ROOT, *arguments).read_text()
    assert program == "placement-proofs", command
    ran = run(*arguments)
    return ran.out + ran.err


def shows(shown, real):
    """Whether a page shows real output, apart from lines that it leaves out."""
    parts = [re.escape(part) for part in f"\n{shown.rstrip()}\n".split(LEFT_OUT)]
    return re.fullmatch("\n(?:.*\n)?".join(parts), f"\n{real.rstrip()}\n", re.DOTALL) is not None


def failures(page):
    """How many examples of a page's Python blocks fail; they share their names."""
    names, failed = {}, 0
    for number, block in enumerate(page.blocks("python")):
        test = doctest.DocTestParser().get_doctest(block, names, f"{page}:{number}", None, 0)
        assert test.examples, f"{page}: a Python block without an example"
        failed += doctest.DocTestRunner().run(test, clear_globs=False).failed
        names = test.globs
    return failed


def rewritten(page, run):
    """The page with real output, except in blocks that leave lines out."""

    def filled(block):
        if block[1] != "console":
            return block[0]
        parts = [
            f"$ {command}\n" + (shown if LEFT_OUT in f"\n{shown}" else real(command))
            for command, shown in COMMAND.findall(block[2])
        ]
        return "```console\n" + "\n".join(part.rstrip() + "\n" for part in parts) + "```"

    def real(command):
        return output(run, command).rstrip() + "\n"

    return BLOCK.sub(filled, page.text)


def in_a_process(*arguments):
    """A runner for scripts, like the ``run`` fixture."""
    import subprocess
    import sys
    from types import SimpleNamespace

    command = [sys.executable, "-m", "placement_proofs", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    return SimpleNamespace(out=ran.stdout, err=ran.stderr)
