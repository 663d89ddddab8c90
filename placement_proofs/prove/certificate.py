"""The proof obligations as SMT-LIB 2: is there a size at which some entry differs?

One block per size class: sizes are reals >= 1 (which includes the integers), counts are
positive, flags are 0 or 1, fractions are compared crosswise, and one disjunction asks for any
unequal entry. Every block must be unsatisfiable.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from placement_proofs.prove.algebra import Atoms, Count, Inverse, Mono, Opaque, Poly, Size
from placement_proofs.prove.engine import Run, Runs
from placement_proofs.prove.state import SizeClass
from placement_proofs.prove.text import atom_text

HEADER = "(set-logic QF_NRA)\n"


def blocks(runs: Runs) -> list[str]:
    """One script of declarations and assertions per size class, without check-sat."""
    atoms = runs.symbols.atoms
    texts = dict.fromkeys(_block(atoms, run) for run in runs.runs)
    return [text for text in texts if text]


def script(runs: Runs) -> str:
    """The whole certificate as one SMT-LIB 2 script; every answer must be unsat."""
    parts = [f"(push 1)\n{block}(check-sat)\n(pop 1)\n" for block in blocks(runs)]
    return HEADER + "".join(parts)


def entry_pairs(run: Run) -> list[tuple[Poly, Poly]]:
    """All entries of all obligations of a run, what is there and what should be."""
    pairs: dict[tuple[Poly, Poly], None] = {}
    for obligation in run.state.obligations:
        sides = (obligation.got, obligation.want, obligation.layout)
        for _, got, want, _ in run.state.compare.pairs(*sides):
            pairs[got, want] = None
    return list(pairs)


def _block(atoms: Atoms, run: Run) -> str:
    pairs = entry_pairs(run)
    if not pairs:
        return ""
    lines = declarations(atoms, run.size, [poly for pair in pairs for poly in pair])
    different = sorted({unequal(got, want) for got, want in pairs})
    lines.append(f"(assert (or false {' '.join(different)}))")
    return "\n".join(lines) + "\n"


def declarations(
    atoms: Atoms, size: SizeClass, polys: Iterable[Poly], label: str = ""
) -> list[str]:
    """Declarations of all atoms in some polynomials, and what is known of them.

    What is known of sizes holds under a label, if one is given.
    """
    used = _closed(atoms, {index for poly in polys for index in _atoms(poly)})
    lines = [_declare(atoms, size, index, label) for index in sorted(used)]
    lines += [
        f"(assert (= (* x{index} {_poly(atom.poly)}) 1))"
        for index in sorted(used)
        if isinstance(atom := atoms.atoms[index], Inverse)
    ]
    return lines


def unequal(got: Poly, want: Poly) -> str:
    """Two fractions differ: compared crosswise, so that nothing is divided."""
    return f"(not {equal(got, want)})"


def equal(got: Poly, want: Poly) -> str:
    """Two fractions are equal."""
    (left, below_left), (right, below_right) = _fraction(got), _fraction(want)
    return f"(= (* {left} {below_right}) (* {right} {below_left}))"


def _fraction(poly: Poly) -> tuple[str, str]:
    lowest: dict[int, int] = {}
    for mono in poly.terms:
        for index, power in mono:
            lowest[index] = min(lowest.get(index, 0), power)
    below: Mono = tuple(sorted((index, -power) for index, power in lowest.items() if power))
    return _poly(poly * Poly({below: 1})), _mono(below, Fraction(1))


def _closed(atoms: Atoms, used: set[int]) -> set[int]:
    todo = list(used)
    while todo:
        atom = atoms.atoms[todo.pop()]
        if isinstance(atom, Inverse):
            new = _atoms(atom.poly) - used
            used |= new
            todo.extend(new)
    return used


def _declare(atoms: Atoms, size: SizeClass, index: int, label: str) -> str:
    atom = atoms.atoms[index]
    line = f"(declare-const x{index} Real) ; {atom_text(atoms, index)}\n"
    match atom:
        case Size(name):
            known = f"(>= x{index} {2 if name in size.many else 1})"
            return f"{line}(assert {f'(=> {label} {known})' if label else known})"
        case Count(bit=True):
            return f"{line}(assert (or (= x{index} 0.0) (= x{index} 1.0)))"
        case Count():
            return f"{line}(assert (> x{index} 0))"
        case Opaque(kind="step"):
            return line.rstrip("\n")
        case _:
            return f"{line}(assert (not (= x{index} 0)))"


def _atoms(poly: Poly) -> set[int]:
    return {index for mono in poly.terms for index, _ in mono}


def _poly(poly: Poly) -> str:
    terms = [_mono(mono, Fraction(value)) for mono, value in sorted(poly.terms.items())]
    if not terms:
        return "0.0"
    return terms[0] if len(terms) == 1 else f"(+ {' '.join(terms)})"


def _mono(mono: Mono, value: Fraction) -> str:
    factors = [f"x{index}" for index, power in mono for _ in range(power)]
    if value != 1 or not factors:
        factors.insert(0, _number(value))
    return factors[0] if len(factors) == 1 else f"(* {' '.join(factors)})"


def _number(value: Fraction) -> str:
    text = f"{abs(value.numerator)}.0"
    if value.denominator != 1:
        text = f"(/ {text} {value.denominator}.0)"
    return f"(- {text})" if value < 0 else text
