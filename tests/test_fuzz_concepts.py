"""Prover and replay agree on random programs with streams, flags, owners and declared delays.

The claims are drawn too, so that right and wrong ones meet; a proof that a replay contradicts
(any mesh up to size three, flags in two patterns) fails the test.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from agreement import agreement, agreement_at, replays

from placement_proofs.errors import IllFormed
from placement_proofs.program import Program
from placement_proofs.program.text import format_program, parse_program
from placement_proofs.prove.algebra import Atoms
from placement_proofs.prove.state import State
from placement_proofs.verdict import Verdict

Pick = Callable[[Sequence[str]], str]


def streams(pick: Pick) -> str:
    """Two draws, by seed or by index, replayed or not, in a loop or not; one claim."""
    keys = ("", " key=a", " key=b", " key=a,b", " index=a", " index=a,b", " key=a index=b")
    replay = pick(("", "", " replay=m"))
    lines = [f"sample m = s{pick(keys)}", f"sample r = s{pick(keys)}{replay}"]
    lines += [pick(("", "", "take r a first", "sum r b", "mean m a"))]
    over = pick(("", "a", "a,b", "b"))
    own = ",".join(f"@{axis}" for axis in over.split(",") if axis)
    claims = (
        f"expect m drawn axes={over}" if over else "expect m drawn",
        "expect r same m",
        f"expect m is s[{own}]",
        f"expect r is s.n1[{own}]",
        f"expect m agree axes={over or 'a'}",
    )
    lines += [pick(claims), pick(claims)]
    if pick(("", "", "loop")):
        lines = ["loop mb {", *(line.replace("s[", "s[@mb,").replace(",]", "]") for line in lines)]
        lines = [*(line.replace("s.n1[", "s.n1[@mb,").replace(",]", "]") for line in lines), "}"]
    return "axes a b\n" + "\n".join(lines)


def flags(pick: Pick) -> str:
    """Contributions of the ranks that take part, and a flag that some rank raises."""
    target = pick(("c[a,b]*n[a,b]/n", "c[a,b]*n[a,b]", "c[a,b]/(a*b)", "c[a,b]*n[a,b]*n[a,b]/n"))
    factor = pick(("k/t", "k*k/t", "k*k*k", "1/t", "k", "(2*k-k*k)/t", "(1-k)*k+k/t"))
    lines = [f"spec W = {target}", "copy w of W", "flag k = n[a,b]", "set t k"]
    lines += [pick(("sum t a,b", "sum t a,b", "sum t a\nsum t b")), f"grad g = c[a,b] x={factor}"]
    lines += [pick(("sum g a,b", "sum g a,b", "mean g a,b", "sum g a")), "update w g", "tick"]
    lines += ["flag m = n[a,b]"]
    lines += [pick(("max m a\nmax m b", "max m a,b", "max m a", "take m a first\nmax m b", ""))]
    lines += [pick(("expect m is max(n[a,b])", "expect m agree", "expect m is max(n[a,@b])"))]
    return "axes a b\n" + "\n".join(lines)


def turns(pick: Pick) -> str:
    """Flags and draws in a loop of micro-batches, accumulated in two ways."""
    factors = ("k", "k*k", "1", "2*k-k", "k*k*k", "k*k-k+1")
    body = ["flag k = n[a,mb]", pick(("", "", "max k a", "take k a first"))]
    body += ["sample m = d key=a", f"sample r = d key=a{pick(('', ' replay=m'))}"]
    for name in ("g", "u"):
        factor, sign = pick(factors), pick(("+=", "+=", "="))
        body += [f"if mb.first: grad {name} = c[a,mb] x={factor}"]
        body += [f"if mb.!first: grad {name} {sign} c[a,mb] x={factor}"]
    body += ["if mb.first: count t = n2[a,mb]", "if mb.!first: count t += n2[a,mb]"]
    after = [pick(("sum t a", "mean t a", "")), pick(("sum g a", "")), pick(("sum u a", ""))]
    claims = ("expect g same u", "expect t is n2[a,mb]", "expect r same m", "expect k agree")
    loop = ["loop mb {", *body, "}"]
    return "\n".join(["axes a", *loop, *after, pick(claims), pick(claims)])


def owners(pick: Pick) -> str:
    """A shard that is gathered, or updated, under another description of its owner."""
    digits = (
        "a ...",
        "2 a ...",
        "b a ...",
        "a b ...",
        "a 2 ...",
        "... a",
        "... a b",
        "1 a ...",
        "[b] ...",
        "[2] ...",
    )
    lines = [f"owner a:p = {pick(digits)}", f"owner a:q = {pick(digits)}"]
    lines += ["spec W = c[a]", "copy m of W held=a:p", "copy w of W", "use w", "grad g = c[a]"]
    lines += [f"sum g a to={pick('ppq')}", "update m g", "tick", "set w m"]
    return "axes a b\n" + "\n".join([*lines, f"gather w a {pick('pqq')}", "use w"])


def delays(pick: Pick) -> str:
    """An optimizer some steps behind, and a copy that is read late."""
    late = pick(("", " late=1", " late=2"))
    clip = pick(("", "", " clip=all"))
    lines = [f"spec W = c[a]/a{late}{clip}", "copy w of W", "copy v of W", "buffer d", "buffer e"]
    body = [f"use v{pick(('', ' within=1', ' within=2'))}", "grad g = c[a]"]
    body += [pick(("mean g a", "mean g a", "sum g a"))]
    moves = {"": "set d g", "1": "", "2": "set d e"}
    used = pick(("", "1", "2"))
    body += [moves[used], *(["square q = d", "clip d by q"] if clip and pick("yn") == "y" else [])]
    body += [pick(("update w d", "update w d", "update w e"))]
    body += ["set d g" if used == "1" else "", "set e g", "tick", pick(("set v w", "", "set v w"))]
    body = body if pick("yn") == "y" else [*body[:-1], "", body[-1]]
    return "axes a\n" + "\n".join([*lines, "loop step {", *body, "}"])


def functions(pick: Pick) -> str:
    """A function of activations and masks that are placed alike, or not."""
    cut = pick(("", "take m a p", "sum m a", "take m b first"))
    index = ("@a,@b", "a,@b", "@a,b")
    lines = ["grad x = x[a,b]", "grad m = m[a,b]", cut, pick(("", "mean x a"))]
    lines += ["apply y = f(x, m)", f"expect y is f(x[{pick(index)}], m[{pick(index)}])"]
    return "axes a b\n" + "\n".join(lines)


def covers(pick: Pick) -> str:
    """Rows that are cut over an axis, of free or of fixed sizes."""
    sizes = [f"size rows {pick('1234')}", f"size a {pick('123')}"]
    said = " ".join(word for word in ("up", "even", "divides") if pick("yn") == "y")
    fixed = sizes if pick("ynn") == "y" else []
    return "\n".join(["axes a", "loops rows", *fixed, f"cover rows over a {said}"])


MAKERS = {f.__name__: f for f in (streams, flags, turns, owners, delays, functions, covers)}


def programs(maker: Callable[[Pick], str], count: int) -> list[Program]:
    """Well-formed random programs of one kind, all different."""
    found: dict[str, Program] = {}
    for seed in range(count):
        rng = random.Random(seed)
        text = maker(lambda options, rng=rng: rng.choice(list(options)))
        try:
            found[text] = parse_program(text)
        except IllFormed:
            continue
    return list(found.values())


def compare(program: Program, seen: Counter[Verdict]) -> str:
    """What contradicts the prover, with flags in two patterns."""
    if program.sizes:
        trouble = agreement_at(program, dict(program.sizes))
        return f"{trouble}\n{format_program(program)}" if trouble else ""
    found = agreement(program)
    seen[found.result.verdict] += 1
    if found.trouble:
        return f"{found.trouble}\n{format_program(program)}"
    for mesh, outcome in replays(program, seed=8):
        for mismatch in outcome.mismatches if outcome else ():
            if found.result[mismatch.condition].verdict is Verdict.PROVED:
                return f"{mismatch} at {mesh}\n{format_program(program)}"
    return ""


@pytest.mark.parametrize("name", MAKERS)
def test_prover_and_replay_agree(name: str) -> None:
    seen: Counter[Verdict] = Counter()
    for program in programs(MAKERS[name], 150):
        trouble = compare(program, seen)
        assert not trouble, trouble
        assert parse_program(format_program(program)) == program
    assert seen[Verdict.PROVED] >= 2, seen
    assert seen[Verdict.REFUTED] >= 3, seen
    assert seen[Verdict.UNKNOWN] <= sum(seen.values()) // 10, seen


@pytest.mark.deep
@pytest.mark.parametrize("name", MAKERS)
def test_prover_and_replay_agree_on_many(name: str) -> None:
    seen: Counter[Verdict] = Counter()
    for program in programs(MAKERS[name], 5_000):
        trouble = compare(program, seen)
        assert not trouble, trouble


SABOTAGE = {
    "powers of flags stay": ("flags", Atoms, "flat", lambda self, poly: poly),
    "all owners are alike": (
        "owners",
        State,
        "relayout",
        lambda self, cell, layout: cell[0],
    ),
}


@pytest.mark.parametrize("name", SABOTAGE)
def test_a_broken_prover_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    maker, owner, method, broken = SABOTAGE[name]
    monkeypatch.setattr(owner, method, broken)
    seen: Counter[Verdict] = Counter()
    noticed = any(compare(program, seen) for program in programs(MAKERS[maker], 150))
    assert noticed or seen[Verdict.UNKNOWN]
