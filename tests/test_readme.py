"""The README's blocks do what they show. ``python tests/test_readme.py`` writes the real output."""

import re

import pytest
from conftest import ROOT
from pages import Page, failures, in_a_process, output, rewritten, shows

README = Page(ROOT / "README.md")


@pytest.mark.parametrize(("command", "shown"), README.commands())
def test_console_blocks_show_the_real_output(run, command, shown):
    real = output(run, command)
    assert shows(shown, real), real


@pytest.mark.parametrize(
    ("shown", "real", "same"),
    [
        ("a\nb", "a\nb", True),
        ("a\nb", "a\nc", False),
        ("a\n...\nd", "a\nb\nc\nd", True),
        ("a\n...\nd", "a\nd", True),
        ("a\n...\nd", "a\nb\nc\nde", False),
        ("a\n...", "b\nc", False),
        ("a...", "ab", False),
    ],
)
def test_only_a_line_of_dots_leaves_lines_out(shown, real, same):
    assert shows(shown, real) is same


def test_python_blocks():
    assert README.blocks("python")
    assert failures(README) == 0


def test_two_commands_set_everything_up():
    """They are run by .ci/run, each in a fresh environment."""
    first, second = (block.rstrip() for block in README.blocks("bash"))
    for command in (first, second):
        assert command.startswith("python3 -m venv .venv && .venv/bin/pip install -q -e ")
        assert "\n" not in command
    assert " check examples/configs/" in first
    assert second.endswith(".venv/bin/python -m pytest -n 2")


def test_the_readme_begins_with_five_lines():
    _, title, rest = README.text.partition("# placement-proofs\n\n")
    assert title
    assert len(re.split("\n\n", rest)[0].splitlines()) == 5


if __name__ == "__main__":
    README.path.write_text(rewritten(README, in_a_process))
