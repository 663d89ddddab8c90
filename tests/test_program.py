"""The text form, its files, and what is ill-formed: whole messages are pinned."""

from __future__ import annotations

from pathlib import Path

import pytest

from placement_proofs.errors import IllFormed
from placement_proofs.program import (
    Apply,
    Buffer,
    Clip,
    Expect,
    Guard,
    Init,
    Loop,
    Move,
    Param,
    Program,
    Reduce,
    Scale,
    Slice,
    Source,
    Square,
    Take,
    Term,
    Tick,
    Update,
    Use,
    validate,
)
from placement_proofs.program.text import (
    format_program,
    load_file,
    load_program,
    parse_program,
)

EVERYTHING = Program(
    axes=("dp", "pp"),
    loops=("step", "mb"),
    params=(
        Param("W", (Term("c", ("dp", "mb"), "1/(dp*mb)"), Term("d", ("dp",), "-1/2")), clip="all"),
        Param("V", (Term("e", ("dp",), "1/n"),), update="whole", hyper=("lr", "decay")),
        Param("frozen"),
    ),
    buffers=(
        Buffer("w", "W", held=(("dp", "p"), ("pp", "first")), vary=("dp",)),
        Buffer("v", "V"),
        Buffer("f", "frozen"),
        Buffer("acc", "", held=(("dp", "p"),)),
    ),
    steps=(
        Init("mask", "dropout.1", vary=("dp",)),
        Loop(
            "step",
            (
                Use("w", why="forward"),
                Source("k", "n", ("dp",), count=True),
                Reduce("k", ("dp",)),
                Loop(
                    "mb",
                    (
                        Source(
                            "g",
                            "c",
                            ("dp", "mb"),
                            factor="1/mb",
                            g=Guard(turns=(("mb", "first"),)),
                        ),
                        Source(
                            "g",
                            "c",
                            ("dp", "mb"),
                            add=True,
                            factor="1/mb",
                            g=Guard(turns=(("mb", "!first"),)),
                        ),
                    ),
                ),
                Source("h", "e", ("dp",), summed=("dp",)),
                Scale("h", "1/k"),
                Reduce("g", ("dp",), mean=True, to="p"),
                Move("t", "g", coef="-1"),
                Move("t", "g", add=True),
                Move("t", "t", coef="0"),
                Take("h", "pp", "last", g=Guard(sizes=(("pp", False),))),
                Slice("t", "pp", "first"),
                Apply("y", "gelu", ("h",)),
                Apply("z", "orthogonalise", ("h",), whole=True),
                Square("q", ("g",), why="norm"),
                Reduce("q", ("dp",)),
                Clip(("g",), "q"),
                Update("w", "g", g=Guard(at=(("pp", "first"),))),
                Update("v", "h", hyper=("lr",)),
                Expect("y", "agree", axes=("dp",), about="activation"),
                Expect("h", "is", (Term("e", ("@dp",), "2", fn="f"), Term("e", ("dp",)))),
                Expect("y", "same", other="y"),
                Tick(),
            ),
        ),
    ),
    sizes=(("pp", 4), ("mb", 8)),
    name="everything",
    equal=("n",),
)


def test_round_trip_of_every_construct() -> None:
    text = format_program(EVERYTHING)
    again = parse_program(text)
    assert again == EVERYTHING
    assert format_program(again) == text


def test_expressions_become_canonical() -> None:
    program = parse_program(
        "axes dp; spec W = 2*c[dp] / (dp) - d[dp]; copy w of W; use w; grad g = c[dp]"
    )
    assert program.params[0].target == (
        Term("c", ("dp",), "2/dp"),
        Term("d", ("dp",), "-1"),
    )
    assert parse_program(format_program(program)) == program


def test_short_forms() -> None:
    program = parse_program(
        """
        axes dp tp
        spec W = c[dp]          # a comment
        copy w of W shard=dp,tp
        use w; zero w; gather w dp
        """
    )
    assert program.buffers == (Buffer("w", "W", held=(("dp", "p"), ("tp", "p"))),)
    assert program.steps == (Use("w"), Move("w", "w", coef="0"), Take("w", "dp", "p"))


HEAD = "axes dp tp; spec W = c[dp]/dp; copy w of W held=dp:p; copy v of W\n"

BAD = {
    "unknown axis": ("grad g = c[dp]; sum g do; update v g", "axis 'do'"),
    "vary over an unknown axis": ("copy x of W vary=dq; use v", "axis 'dq'"),
    "misspelt option": ("grad g = c[dp] summ=dp; update v g", "summ"),
    "option twice": ("grad g = c[dp] x=1 x=2; update v g", "given once"),
    "unknown statement": ("reduce g dp", "a statement begins with one of"),
    "block without end": ("loop mb { use v", "a block ends with '}'"),
    "end without block": ("use v }", "a block is opened before it is closed"),
    "empty block": ("loop mb { }; use v", "a loop has a body"),
    "no obligations": ("grad g = c[dp]; mean g dp", "proves nothing"),
    "read before write": ("update v g", "which nothing has written"),
    "zero without a layout": ("grad h = c[dp]; set g h x=0; update v g", "has no layout yet"),
    "code in an expression": ("grad g = c[dp] x=__import__('os'); update v g", "__import__"),
    "power in an expression": ("grad g = c[dp] x=dp**99; update v g", "an expression has"),
    "unknown name in an expression": ("grad g = c[dp] x=1/k; update v g", "name 'k'"),
    "division by zero": ("grad g = c[dp] x=1/0; update v g", "never zero"),
    "closed loop index": ("loop mb { use v }; grad g = c[dp,mb]; update v g", "'mb'"),
    "turn of a closed loop": ("if mb.first: use v", "open loop 'mb'"),
    "hang": ("grad g = c[dp]; if dp@first: sum g dp; update v g", "never arrive"),
    "indices differ": ("grad g = c[dp,tp]; update v g", "one list of indices"),
    "tensor and scalar": ("count k = n[dp]; grad k += c[dp]; use v", "as a scalar and as a tensor"),
    "shard of a scalar": ("count k = n[dp]; slice k dp; use v", "a scalar cannot be cut"),
    "scalar gradient": ("count k = n[dp]; update v k", "cannot be cut"),
    "norm that is no scalar": ("grad g = c[dp]; clip g by g; use v", "scalar 'g'"),
    "use of a plain buffer": ("grad g = c[dp]; use g", "copy of a parameter 'g'"),
    "tick on some ranks": ("use v; if dp@first: tick", "one clock"),
    "unknown parameter": ("copy x of X; use v", "parameter 'X'"),
    "position": ("use v; take v dp 0", "position '0'"),
    "expect nothing": ("grad g = c[dp]; expect g is 0", "a contract is"),
    "expect a typo": ("grad g = c[dp]; expect g equals c[dp]", "write 'expect y is"),
    "target without a family": ("spec V = 1/dp; use v", "a target is a sum"),
    "target with a product": ("spec V = c[dp]*c[dp]; use v", "a target is a sum"),
    "size zero": ("size dp 0; use v", "an integer from 1"),
    "size with a sign": ("size dp -1; use v", "positive integer"),
    "nested loop of the same name": ("loop mb { loop mb { use v } }", "inside itself"),
    "end as an axis name": ("axes first; use v", "the name 'first'"),
}


@pytest.mark.parametrize(("body", "found"), BAD.values(), ids=BAD)
def test_ill_formed(body: str, found: str) -> None:
    with pytest.raises(IllFormed) as caught:
        parse_program(HEAD + body)
    assert found in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_message_names_place_value_rule_and_remedy() -> None:
    with pytest.raises(IllFormed) as caught:
        parse_program(HEAD + "grad g = c[dp]\nsum g do\nupdate v g", place="loop.toml")
    assert str(caught.value) == (
        "step 2: found axis 'do'; only declared names have a meaning (here: dp, tp); "
        "declare 'do' or correct the spelling"
    )
    with pytest.raises(IllFormed) as caught:
        parse_program(HEAD + "grad g = c[dp]\nsume g dp", place="loop.toml")
    assert caught.value.place == "loop.toml, line 3"


def test_deep_nesting_and_long_texts_are_refused() -> None:
    deep = "".join(f"loop l{i} {{ " for i in range(50)) + "use v" + " }" * 50
    for text in (HEAD + deep, HEAD + "use v\n" * 100_000, HEAD + "use v\n" * 5_001):
        with pytest.raises(IllFormed):
            parse_program(text)
    parentheses = "(" * 5_000 + "1" + ")" * 5_000
    with pytest.raises(IllFormed):
        parse_program(HEAD + f"grad g = c[dp] x={parentheses}; update v g")


FILE = """
name = "toy"
[mesh]
dp = "N"
tp = 2
[loops]
mb = 4
[spec.W]
target = "c[dp,mb]/(dp*mb)"
clip = "all"
[copies]
w = "W held=dp:p"
[[claim]]
condition = "gradient_integrity"
verdict = "refuted"
mesh = { dp = 2 }
[program]
text = \"\"\"
loop mb { grad g += c[dp,mb] }
update w g
\"\"\"
"""


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "toy.toml"
    path.write_text(FILE)
    file = load_file(path)
    assert file.program == load_program(path)
    assert file.program.axes == ("dp", "tp")
    assert file.program.sizes == (("tp", 2), ("mb", 4))
    assert file.program.buffers == (Buffer("w", "W", held=(("dp", "p"),)),)
    (claim,) = file.claims
    assert (claim.condition, claim.verdict, claim.mesh) == (
        "gradient_integrity",
        "refuted",
        (("dp", 2),),
    )


@pytest.mark.parametrize(
    "text",
    [
        "[mesh",
        "mesh = 3",
        "[mash]\ndp = 2",
        "[mesh]\ndp = 0\n[program]\ntext='use w'",
        "[program]\ntext = 3",
        "[[claim]]\nvredict = 'x'\n[program]\ntext=''",
        "[mesh]\ndp = 'N'\n[spec]\nW = 3\n[program]\ntext='use w'",
        "[mesh]\ndp = true",
    ],
)
def test_bad_files(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(IllFormed):
        load_program(path)


def test_a_missing_file_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(IllFormed, match=r"nowhere\.toml"):
        load_program(tmp_path / "nowhere.toml")


def test_validate_checks_programs_built_in_python() -> None:
    validate(EVERYTHING)
    with pytest.raises(IllFormed, match="proves nothing"):
        validate(Program(("dp",)))
