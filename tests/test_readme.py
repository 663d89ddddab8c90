"""The README's blocks do what they show. ``python tests/test_readme.py`` writes the real output."""

import doctest
import re
import shlex
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
TEXT = README.read_text()
CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def commands():
    for block in CONSOLE.findall(TEXT):
        yield from COMMAND.findall(block)


@pytest.mark.parametrize(("command", "shown"), list(commands()))
def test_console_blocks_show_the_real_output(run, command, shown):
    assert shown.rstrip() == output(run, command).rstrip()


def output(run, command):
    program, *arguments = shlex.split(command)
    if program == "cat":
        return Path(README.parent, *arguments).read_text()
    assert program == "placement-proofs"
    ran = run(*arguments)
    assert ran.err == ""
    return ran.out


def test_python_blocks(monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert blocks
    for block in blocks:
        test = doctest.DocTestParser().get_doctest(block, {}, "README", "README.md", 0)
        assert doctest.DocTestRunner().run(test).failed == 0


def test_two_commands_set_everything_up():
    """They are run by .ci/run, each in a fresh environment."""
    first, second = re.findall(r"```bash\n(.*?)\n```", TEXT, re.DOTALL)
    for command in (first, second):
        assert command.startswith("python3 -m venv .venv && .venv/bin/pip install -q -e ")
        assert "\n" not in command
    assert " check examples/configs/" in first
    assert second.endswith(".venv/bin/python -m pytest -n 2")


def test_the_readme_begins_with_five_lines():
    _, title, rest = TEXT.partition("# placement-proofs\n\n")
    assert title
    assert len(rest.partition("\n\n")[0].splitlines()) == 5


def rewritten(run):
    def filled(block):
        parts = [
            f"$ {command}\n{output(run, command).rstrip()}\n"
            for command, _ in COMMAND.findall(block[1])
        ]
        return "```console\n" + "\n".join(parts) + "```"

    return CONSOLE.sub(filled, TEXT)


if __name__ == "__main__":
    import subprocess
    from types import SimpleNamespace

    def in_a_process(*arguments):
        command = [sys.executable, "-m", "placement_proofs", *arguments]
        ran = subprocess.run(command, capture_output=True, text=True, cwd=README.parent)
        return SimpleNamespace(out=ran.stdout, err=ran.stderr)

    README.write_text(rewritten(in_a_process))
