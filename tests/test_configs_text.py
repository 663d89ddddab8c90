"""Reading files: syntax, encodings, limits, placeholders; whole messages of the common faults."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from placement_proofs.configs import detect, load
from placement_proofs.configs.document import Block, Section
from placement_proofs.configs.hjson_text import parse_hjson
from placement_proofs.configs.yaml_text import parse_yaml
from placement_proofs.errors import IllFormed


def _refusal(call: object, *args: object, **kwargs: object) -> str:
    assert callable(call)
    with pytest.raises(IllFormed) as caught:
        call(*args, **kwargs)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_hjson_accepts_comments_trailing_commas_and_unquoted_words() -> None:
    text = '{\n  # one\n  // two\n  /* three */ a: 5e8\n  "b": [1, 2,],\n  c: cpu\n  d: null,\n}'
    section = Section("f", parse_hjson(text, "f"))
    assert section.integer("a") == 500_000_000
    assert section.raw("b") == (1, 2)
    assert section.word("c") == "cpu"
    assert "d" not in section
    assert section.place("a") == "f:4 a"


def test_hjson_duplicate_keys_are_refused() -> None:
    assert _refusal(parse_hjson, '{"a": {\n"b": 1,\n"b": 2}}', "f.json") == (
        "f.json:3: found 'b' a second time (first on line 2); DeepSpeed reads its files with hjson "
        "(runtime/config.py) and raises on duplicate keys; keep one of the two"
    )


@pytest.mark.parametrize(
    ("text", "place", "found"),
    [
        ('{"zero_optimization": {\n"stage": ZERO_STAGE\n}}', "f:2 zero_optimization.stage", "ZERO"),
        ('{"train_batch_size": CONFIG_BATCH_SIZE,\n"a": 1}', "f:1 train_batch_size", "CONFIG"),
        ('{"a": ${GAS}}', "f:1 a", "${GAS}"),
        ('{\n\n"a": <batch>}', "f:3 a", "<batch>"),
    ],
)
def test_templates_are_refused_with_file_line_key_and_value(
    text: str, place: str, found: str
) -> None:
    message = _refusal(parse_hjson, text, "f")
    assert message.startswith(f"{place}: found {found}")
    assert "a script replaces this word" in message


def test_a_word_that_is_no_template_is_not_refused() -> None:
    assert parse_hjson("{\na: nvme\n}", "f").items["a"].value == "nvme"


def test_a_quoted_variable_is_refused_where_it_is_used(tmp_path: Path) -> None:
    file = tmp_path / "ds.json"
    file.write_text('{"train_batch_size": "${BATCH}", "fp16": {"enabled": true}}')
    assert _refusal(load, file) == (
        "ds.json:1 train_batch_size: found '${BATCH}'; it is a placeholder that a script fills in "
        "before the framework reads the file; fill it in and check the result"
    )


@pytest.mark.parametrize(
    "text",
    ['{"a":', '{"a": /*', "{'''", "[1]", "5", "", "}", '{"a": 1e400}', "{" + '"a":' + "1" * 5000],
)
def test_broken_json_is_one_clear_line(text: str) -> None:
    assert _refusal(parse_hjson, text, "f").startswith("f")


def test_template_braces_are_named() -> None:
    assert "the braces of a template" in _refusal(parse_hjson, '{"a": {{ gas }}}', "f")


@pytest.mark.parametrize(
    "text",
    [
        "a: !!python/object/apply:os.system ['true']",
        "a: !x y",
        "- 1",
        "",
        "a: &a\n  b: *a",
        "a: 2020-99-99",
        "? {a: b}\n: c",
        "a: 1\n---\nb: 2",
        "\tx: 1",
        'a: "',
        "a: [" + "[" * 5000,
    ],
)
def test_broken_or_foreign_yaml_is_one_clear_line(text: str) -> None:
    assert _refusal(parse_yaml, text, "f").startswith("f")


def test_deep_nesting_is_refused_at_once() -> None:
    rule = "blocks nest at most 64 deep"
    assert rule in _refusal(parse_hjson, "[" * 100_000, "f")
    assert rule in _refusal(parse_hjson, '{"a":' * 100_000, "f")
    assert rule in _refusal(parse_yaml, "{a: " * 70, "f")


def test_alias_bombs_are_refused_at_once() -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    for before, name in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]")
    started = time.monotonic()
    message = _refusal(parse_yaml, "\n".join(lines), "f")
    assert "at most 20,000 values, aliases written out" in message
    assert time.monotonic() - started < 2


def test_aliases_and_merges_within_the_budget_are_read() -> None:
    block = parse_yaml("base: &b {x: 1, y: 2}\nnext:\n  <<: *b\n  y: 3\n", "f")
    following = block.items["next"].value
    assert isinstance(following, Block)
    assert {key: item.value for key, item in following.items.items()} == {"x": 1, "y": 3}


def test_long_lines_do_not_hang() -> None:
    started = time.monotonic()
    _refusal(parse_hjson, '{"a": n' + "," * 1_000_000, "f")
    assert time.monotonic() - started < 2


@pytest.mark.parametrize(
    ("written", "value"),
    [("1e9", 10**9), ("5e8", 5 * 10**8), ("'8'", 8), ("8.0", 8), ("1_000", 1000), ("auto", None)],
)
def test_numbers_as_yaml_has_them(written: str, value: int | None) -> None:
    assert Section("f", parse_yaml(f"a: {written}", "f")).integer("a") == value


@pytest.mark.parametrize("written", ["yes please", "1.5", ".inf", ".nan", "[1]", "true", "-1"])
def test_other_values_are_no_whole_numbers(written: str) -> None:
    section = Section("f", parse_yaml(f"a: {written}", "f"))
    assert _refusal(section.integer, "a").startswith("f:1 a: found ")


@pytest.mark.parametrize(("written", "value"), [("no", False), ("'yes'", True), ("1", True)])
def test_flags_as_launchers_accept_them(written: str, value: bool) -> None:
    assert Section("f", parse_yaml(f"a: {written}", "f")).flag("a") is value


@pytest.mark.parametrize("coding", ["utf-8", "utf-8-sig", "utf-16"])
def test_encodings_are_read(tmp_path: Path, coding: str) -> None:
    file = tmp_path / "a.json"
    file.write_text('{"train_batch_size": 8, "bf16": {"enabled": true}}', encoding=coding)
    assert detect(file) == "deepspeed"


def test_other_encodings_and_binaries_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(b'{"a": "\xe4"}')
    assert "which is not utf-8" in _refusal(load, file)
    file.write_bytes(b'{"a": "\0"}')
    assert "a zero byte" in _refusal(load, file)


def test_size_limit_missing_files_and_folders(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_bytes(b"#" * 10_000_001)
    assert "more than 10 MB" in _refusal(load, file)
    assert "no regular file" in _refusal(load, tmp_path / "none.yaml")
    assert "no regular file" in _refusal(load, tmp_path)
    _refusal(load, "a\0b")
    _refusal(load, "x" * 5000)


def test_format_and_world_arguments(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("x: 1")
    assert "no known format" in _refusal(load, file)
    assert "deepspeed, torchtitan, axolotl" in _refusal(load, file, format="gin")
    for world in (0, -1, 10**10, True, 2.0):
        assert _refusal(load, file, world=world).startswith("world: found")


@pytest.mark.parametrize("name", ["run.cfg", "run"])
def test_files_without_a_known_ending_are_told_by_their_keys(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_text("distributed_type: MULTI_GPU\nnum_processes: 2\n")
    assert detect(file) == "accelerate"
    file.write_text('{"train_batch_size": 4}')
    assert detect(file) == "deepspeed"


def test_importing_the_package_loads_no_parser() -> None:
    code = (
        "import sys, placement_proofs.configs; "
        "print([m for m in ('yaml', 'hjson', 'numpy', 'sympy', 'z3') if m in sys.modules])"
    )
    root = Path(__file__).parents[1]
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
