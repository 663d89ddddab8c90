"""The pages under ``docs`` do what they show; ``python tests/test_docs.py`` writes real output."""

import re
import tomllib

import pytest
import yaml
from conftest import ROOT
from pages import Page, failures, in_a_process, output, rewritten, shows
from reference import GENERATED, PUBLIC, commands

from placement_proofs.faults import read_fault, run_fault
from placement_proofs.theories import read_theory, run_claims

DOCS = ROOT / "docs"
PAGES = [Page(path) for path in sorted(DOCS.rglob("*.md"))]
LANGUAGES = {"console", "python", "toml", "yaml", "{toctree}", "{eval-rst}"}
"""Blocks of other languages are not run, and have no place on a page."""


@pytest.mark.parametrize(
    ("page", "command", "shown"),
    [(page, *found) for page in PAGES for found in page.commands()],
    ids=str,
)
def test_consoles_show_the_real_output(run, page, command, shown):
    real = output(run, command)
    assert shows(shown, real), real


@pytest.mark.parametrize("page", [p for p in PAGES if p.blocks("python")], ids=str)
def test_python_blocks(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert failures(page) == 0


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_block_is_of_a_kind_that_is_run(page):
    assert page.languages() <= LANGUAGES


TABLES = [(page, text) for page in PAGES for text in page.blocks("toml")]


@pytest.mark.parametrize(("page", "text"), TABLES, ids=str)
def test_toml_blocks(run, page, text, tmp_path):
    """A fault and a theory give what they say; anything else has an expected verdict beside it."""
    path = tmp_path / "case.toml"
    path.write_text(text)
    table = tomllib.loads(text)
    if "fault" in table:
        assert run_fault(read_fault(path)).as_expected
    elif "title" in table:
        assert all(outcome.as_expected for outcome in run_claims([read_theory(path)]))
    elif set(table) & {"composition", "program"}:
        assert run("check", str(path)).code in (0, 1)
    else:
        assert run("check", "data(dp=8)", "--model", str(path)).code == 0


@pytest.mark.parametrize("page", [p for p in PAGES if p.blocks("yaml")], ids=str)
def test_yaml_blocks_are_yaml(page):
    for text in page.blocks("yaml"):
        assert isinstance(yaml.safe_load(text.replace("<", "").replace(">", "")), dict)


@pytest.mark.parametrize("name", GENERATED)
def test_generated_pages_are_those_of_the_code(name):
    shown = (DOCS / name).read_text()
    bare = re.sub(r"(```console\n\$ .*\n)(?:.*\n)*?```\n", r"\1```\n", shown)
    assert bare == GENERATED[name]()


def test_every_command_shows_its_help():
    page = Page(DOCS / "reference" / "commands.md")
    asked = {command for command, _ in page.commands()}
    assert asked == {f"{name} --help" for name, _ in commands()}


def test_every_public_name_has_an_entry():
    text = (DOCS / "reference" / "python.md").read_text()
    entries = re.findall(r"^\.\. auto(?:function|class):: placement_proofs\.(\w+)$", text, re.M)
    assert sorted(entries) == sorted(PUBLIC)


def test_every_page_is_in_a_table_of_contents():
    named = set(
        re.findall(r"^([\w/-]+)$", "\n".join(Page(DOCS / "index.md").blocks("{toctree}")), re.M)
    )
    assert {str(p.path.relative_to(DOCS))[:-3] for p in PAGES} == named | {"index"}


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+\.md)\)", page.text):
            assert (page.path.parent / target).is_file(), f"{page}: {target}"


if __name__ == "__main__":
    for name, write in GENERATED.items():
        (DOCS / name).write_text(write())
    for path in sorted(DOCS.rglob("*.md")):
        path.write_text(rewritten(Page(path), in_a_process))
