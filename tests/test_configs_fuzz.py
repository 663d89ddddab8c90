"""Damaged files of every format: an import or one clear line, never another exception or a hang."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from config_files import BASES, SUFFIX, data, edited, rendered, toml_text, yaml_text
from conftest import ROOT
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from placement_proofs.configs import load
from placement_proofs.errors import IllFormed
from placement_proofs.expression import parse
from placement_proofs.models import Shape, transformer

EXAMPLES = sorted((ROOT / "examples" / "configs").iterdir())
MODEL = transformer(Shape(layers=8, heads=8, kv_heads=2, experts=4))
RICH: Mapping[str, Mapping[str, Any]] = data("config_rich.yaml")
"""More keys of a format, or whole files of its older and newer versions."""

WORLDS = st.one_of(st.none(), st.integers(1, 130))
QUICK = settings(
    max_examples=200, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
DEEP = settings(parent=QUICK, max_examples=5000)


def imports_or_refuses(file: Path, world: int | None, shaped: bool = False) -> None:
    """A file is read, and its expression reads back, or it is refused in one line."""
    try:
        imported = load(file, world=world, model=MODEL if shaped else None)
    except IllFormed as error:
        assert "\n" not in str(error)
        return
    assert repr(parse(repr(imported.composition))) == repr(imported.composition)
    json.dumps(imported.to_json())


SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-4, 70),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["auto", "1e9", "${X}", "${10}", "${.x}", "${A:1}", "${multiply:2,3}", "???"]),
    st.sampled_from(
        ["none", "cpu", "nvme", "2", "../x", ".", "full", "ring", "a2a+p2p", "$(date)"]
    ),
    st.sampled_from(["DEEPSPEED", "MEGATRON_LM", "TP", "NO", "XLA", "MULTI_GPU", "GPipe", "'", ""]),
    st.sampled_from(["a\0b", "x" * 400, "Interleaved1F1B", "[0]*3", "1_0", -1, 0, 10**14, 0.25]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=5,
)


def _paths(config: Mapping[str, Any]) -> list[tuple[str, ...]]:
    paths: list[tuple[str, ...]] = []
    for key, value in config.items():
        paths.append((key,))
        if isinstance(value, dict):
            paths += [(key, *inner) for inner in _paths(value)]
    return paths


@st.composite
def damaged(draw: st.DrawFn, config: dict[str, Any]) -> dict[str, Any]:
    """Up to four keys dropped, retyped, scaled, or nested in themselves."""
    result = copy.deepcopy(config)
    for path in draw(st.lists(st.sampled_from(_paths(config)), min_size=1, max_size=4)):
        inner: Any = result
        for key in path[:-1]:
            inner = inner.get(key) if isinstance(inner, dict) else None
        if isinstance(inner, dict) and path[-1] in inner:
            _damage(draw, inner, path[-1])
    return result


def _damage(draw: st.DrawFn, block: dict[str, Any], key: str) -> None:
    action = draw(st.sampled_from(["drop", "retype", "nest", "scale"]))
    old = block.pop(key)
    if action == "scale" and isinstance(old, int | float):
        block[key] = old * draw(st.sampled_from([2, 3, 0.5, 10**9, -1]))
    elif action != "drop":
        block[key] = draw(VALUES) if action == "retype" else {key: old}


def _configs() -> Mapping[str, tuple[str, dict[str, Any], Callable[[Any], str]]]:
    """Name to ending, keys and writer: every base, with more keys, and the rich files."""
    found: dict[str, tuple[str, dict[str, Any], Callable[[Any], str]]] = {}
    for name in BASES:
        config = edited(name, RICH["more"].get(name, {}))
        found[name] = (
            SUFFIX.get(name, ".yaml"),
            config,
            lambda keys, name=name: rendered(name, keys),
        )
    for name, config in RICH["files"].items():
        toml = name.startswith("torchtitan")
        found[name] = (".toml", config, toml_text) if toml else (".yaml", config, yaml_text)
    return found


CONFIGS = _configs()


def damaged_keys(folder: Path, name: str, draw: st.DataObject) -> None:
    suffix, config, text = CONFIGS[name]
    file = folder / f"a{suffix}"
    broken = text(draw.draw(damaged(config)))
    file.write_text(broken, encoding="utf-8", errors="replace")
    imports_or_refuses(file, draw.draw(WORLDS), draw.draw(st.booleans()))


@pytest.mark.parametrize("name", CONFIGS)
@QUICK
@given(draw=st.data())
def test_damaged_keys(tmp_path: Path, name: str, draw: st.DataObject) -> None:
    damaged_keys(tmp_path, name, draw)


@pytest.mark.deep
@pytest.mark.parametrize("name", CONFIGS)
@DEEP
@given(draw=st.data())
def test_damaged_keys_at_length(tmp_path: Path, name: str, draw: st.DataObject) -> None:
    damaged_keys(tmp_path, name, draw)


SNIPPETS = [
    "'", '"', "`", "$(", "${", "$((", "))", ")", "}", "<<EOF\n", "\\\n", "\\", "if [ ", "then",
    "fi", "for x in", "do", "done", "case x in", "esac", ";;", "&&", "||", "|", "#", "--", "=",
    "+=(", "--tensor-model-parallel-size", "--num-layers 0", "${A:-", "$@", "[[", "]]", "((",
    "eval ", "f() {\n", "function f {", "\n}\nf ",
    "bash -c ", "0", "-1", "1e9", "99999999999999999999", "true", "null", "\n", "\t", "é", "\r\n",
    "{", "[", ":", "- ", "? ", "&a ", "*a", "!!x ", "<<: ", "${.x}", "lambda: ", "**", "A=$A$A\n",
]  # fmt: skip
CHANGES = st.lists(
    st.tuples(st.integers(0, 3000), st.integers(0, 12), st.sampled_from(["", *SNIPPETS])),
    min_size=1,
    max_size=4,
)
TEXTS = {file.name: file.read_text(encoding="utf-8") for file in EXAMPLES} | RICH["texts"]


def damaged_text(
    folder: Path, name: str, changes: list[tuple[int, int, str]], keep: float, world: int | None
) -> None:
    text = TEXTS[name]
    for at, length, put in changes:
        at %= len(text) + 1
        text = text[:at] + put + text[at + length :]
    file = folder / name
    file.write_text(text[: int(len(text) * keep)], encoding="utf-8", newline="")
    imports_or_refuses(file, world)


@pytest.mark.parametrize("name", TEXTS)
@QUICK
@given(changes=CHANGES, keep=st.floats(0.1, 1.5), world=WORLDS)
def test_damaged_text(
    tmp_path: Path, name: str, changes: list[tuple[int, int, str]], keep: float, world: int | None
) -> None:
    damaged_text(tmp_path, name, changes, keep, world)


@pytest.mark.deep
@pytest.mark.parametrize("name", TEXTS)
@DEEP
@given(changes=CHANGES, keep=st.floats(0.1, 1.5), world=WORLDS)
def test_damaged_text_at_length(
    tmp_path: Path, name: str, changes: list[tuple[int, int, str]], keep: float, world: int | None
) -> None:
    damaged_text(tmp_path, name, changes, keep, world)


FLAGS: list[str] = RICH["flags"]  # type: ignore[assignment]
WORDS = SCALARS.map(str) | st.sampled_from(["1 2 3", "a b", "'x y'", "optim", "no_shard", "a2a"])


@QUICK
@given(flags=st.lists(st.tuples(st.sampled_from(FLAGS), WORDS), max_size=10), world=WORLDS)
def test_random_flags(tmp_path: Path, flags: list[tuple[str, str]], world: int | None) -> None:
    words = " ".join(f"--{name} {value}" for name, value in flags)
    file = tmp_path / "a.sh"
    text = f"python pretrain.py --num-layers 8 --hidden-size 64 {words}\n"
    file.write_text(text, encoding="utf-8", errors="replace")
    imports_or_refuses(file, world, True)


ENDINGS = sorted({file.suffix for file in EXAMPLES} | {".json", ".toml", ".sh", ".py", ".x", ""})


@QUICK
@given(
    raw=st.binary(max_size=60)
    | st.text(alphabet="ab$(){}[]'\"\\`\n;|&<>#=+-*/ EOF1", max_size=80).map(str.encode),
    suffix=st.sampled_from(ENDINGS),
)
def test_arbitrary_bytes(tmp_path: Path, raw: bytes, suffix: str) -> None:
    file = tmp_path / f"a{suffix}"
    file.write_bytes(raw)
    imports_or_refuses(file, None)
