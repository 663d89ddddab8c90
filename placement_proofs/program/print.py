"""Element programs as text; `program.text` reads them back."""

from __future__ import annotations

from fractions import Fraction

from placement_proofs.program import (
    Apply,
    Buffer,
    Clip,
    Cover,
    Expect,
    Guard,
    Held,
    Init,
    Loop,
    Move,
    Param,
    Program,
    Reduce,
    Sample,
    Scale,
    Slice,
    Source,
    Square,
    Step,
    Take,
    Term,
    Tick,
    Update,
    Use,
)
from placement_proofs.program.expr import Bin, Name, Num, Tree, parse_expr
from placement_proofs.program.flow import BACK, flow_text

_RANK = {"+": 1, "-": 1, "*": 2, "/": 2}


def tree_text(tree: Tree) -> str:
    """An expression with as few parentheses as possible and no spaces."""
    match tree:
        case Num(value):
            return str(value) if value.denominator == 1 else f"({value})"
        case Name(name):
            return name
        case Bin("-", Num(Fraction(numerator=0)), right):
            return f"-{_inner(right, 2)}"
        case Bin(op, left, right):
            rank = _RANK[op]
            start = tree_text(left) if _negated(left) else _inner(left, rank)
            return f"{start}{op}{_inner(right, rank + 1)}"


def _negated(tree: Tree) -> bool:
    return isinstance(tree, Bin) and tree.op == "-" and tree.left == Num(Fraction(0))


def _inner(tree: Tree, least: int) -> str:
    text = tree_text(tree)
    if isinstance(tree, Bin):
        rank = 1 if text.startswith("-") else _RANK[tree.op]
        return text if rank >= least else f"({text})"
    return text


def expr_text(text: str, place: str = "expression") -> str:
    """An expression in canonical form; raises `IllFormed` at `place`."""
    return tree_text(parse_expr(text, place))


def term_text(term: Term) -> str:
    """One term of a target."""
    index = f"[{','.join(term.over)}]" if term.fn != BACK else ""
    family = "*".join(name + index for name in (term.family, *term.weights))
    family = f"{BACK}({family})" if term.fn == BACK else family
    tree = parse_expr(term.coef)
    one = Num(Fraction(1))
    match tree:
        case Num(value) if value == 1:
            body = family
        case Bin("/", left, right) if left == one:
            body = f"{family}/{_inner(right, 3)}"
        case _:
            body = f"{family}*{_inner(tree, 3)}"
    more = "".join(f", {term_text(other)}" for other in term.more)
    return f"{term.fn}({body}{more})" if term.fn not in ("", BACK) else body


def target_text(target: tuple[Term, ...]) -> str:
    """A sum of terms, or 0."""
    return " + ".join(term_text(term) for term in target) or "0"


def _options(**options: str) -> str:
    return "".join(f" {name}={value}" for name, value in options.items() if value)


def _held(held: Held) -> str:
    return ",".join(f"{axis}:{owner}" for axis, owner in held)


def _why(step: Step) -> str:
    return ' why="' + step.why.replace('"', "'") + '"' if step.why else ""


def guard_text(guard: Guard) -> str:
    """`if dp > 1 and mb.first and pp@last: `, or nothing."""
    parts = [f"{axis} == 1" if one else f"{axis} > 1" for axis, one in guard.sizes]
    parts += [f"{loop}.{test}" for loop, test in guard.turns]
    parts += [f"{axis}@{position}" for axis, position in guard.at]
    start = f"start {guard.starts}: " if guard.starts else ""
    return f"if {' and '.join(parts)}: {start}" if parts else start


def step_text(step: Step) -> str:
    """One step on one line; a loop without its body."""
    return guard_text(step.g) + _bare(step) + _why(step)


def _bare(step: Step) -> str:
    match step:
        case Loop():
            return f"loop {step.axis}"
        case Use() | Update() | Tick() | Expect() | Cover():
            return _obligation(step)
        case Apply() | Square() | Clip():
            return _function(step)
        case _:
            return _data(step)


def _data(step: Source | Init | Sample | Reduce | Take | Slice | Scale | Move) -> str:
    match step:
        case Source():
            word = "flag" if step.flag else "count" if step.count else "grad"
            sign = "+=" if step.add else "="
            factor = expr_text(step.factor)
            more = _options(
                x="" if factor == "1" else factor, sum=",".join(step.summed), held=_held(step.held)
            )
            what = f"{step.family}[{','.join(step.over)}]"
            what = f"back({step.family}, {step.back})" if step.back else what
            return f"{word} {step.dst} {sign} {what}{more}"
        case Init():
            more = _options(vary=",".join(step.vary), held=_held(step.held))
            return f"draw {step.dst} = {step.name}{more}"
        case Sample(dst=dst, stream=stream, replay=replay):
            number = "" if step.number is None else str(step.number)
            axes = {"key": ",".join(step.key), "index": ",".join(step.index)}
            more = _options(**axes, replay=replay, number=number)
            return f"sample {dst} = {stream}{more}"
        case Reduce():
            word = "max" if step.top else "mean" if step.mean else "sum"
            return f"{word} {step.buf} {','.join(step.axes)}{_options(to=step.to or '')}"
        case Take():
            return f"take {step.buf} {step.axis} {step.pos}"
        case Slice():
            return f"slice {step.buf} {step.axis} {step.owner}"
        case Scale():
            return f"scale {step.buf} {expr_text(step.by)}"
        case Move(coef="0", add=False) if step.dst == step.src:
            return f"zero {step.dst}"
        case Move():
            word = "add" if step.add else "set"
            coef = expr_text(step.coef)
            return f"{word} {step.dst} {step.src}{_options(x='' if coef == '1' else coef)}"


def _function(step: Apply | Square | Clip) -> str:
    match step:
        case Apply():
            word = "whole" if step.whole else "apply"
            return f"{word} {step.dst} = {step.fn}({', '.join(step.args)})"
        case Square():
            return f"square {step.dst} = {' '.join(step.srcs)}"
        case Clip():
            return f"clip {' '.join(step.bufs)} by {step.by}"


def _obligation(step: Use | Update | Tick | Expect | Cover) -> str:
    match step:
        case Cover():
            words = ("up", step.up), ("even", step.even), ("divides", step.divides)
            said = "".join(f" {word}" for word, on in words if on)
            return f"cover {step.rows} over {step.axis}{said}"
        case Use():
            return f"use {step.buf}{_options(within=_number(step.within))}"
        case Update():
            hyper = "" if step.hyper is None else f" hyper={','.join(step.hyper)}"
            return f"update {step.buf} {step.grad}{hyper}"
        case Tick():
            return "tick"
        case Expect():
            about = "" if step.about == "value" else step.about
            more = _options(axes=",".join(step.axes), about=about.replace(" ", "-"))
            what = {"agree": "agree", "drawn": "drawn", "same": f"same {step.other}"}.get(
                step.kind, f"is {target_text(step.target)}"
            )
            return f"expect {step.buf} {what}{more}"


def _lines(steps: tuple[Step, ...], indent: str) -> list[str]:
    lines: list[str] = []
    for step in steps:
        lines += [f"{indent}wait {' '.join(step.g.after)}"] if step.g.after else []
        if isinstance(step, Loop):
            lines.append(f"{indent}{step_text(step)} {{")
            lines += _lines(step.body, indent + "  ")
            lines.append(f"{indent}}}")
        else:
            lines.append(indent + step_text(step))
    return lines


def _param(param: Param) -> str:
    update = "" if param.update == "elementwise" else param.update
    more = _options(
        clip=param.clip or "",
        update=update,
        hyper=",".join(param.hyper),
        late=_number(param.late),
    )
    return f"spec {param.name} = {target_text(param.target)}{more}"


def _number(value: int) -> str:
    return str(value) if value else ""


def _buffer(buffer: Buffer) -> str:
    more = _options(held=_held(buffer.held), vary=",".join(buffer.vary))
    if not buffer.of:
        return f"buffer {buffer.name}{more}"
    return f"copy {buffer.name} of {buffer.of}{more}"


def format_program(program: Program) -> str:
    """The text form of a program; `parse_program` reads it back."""
    lines = [f"name {program.name}"] if program.name else []
    lines += [f"axes {' '.join(program.axes)}"] if program.axes else []
    lines += [f"loops {' '.join(program.loops)}"] if program.loops else []
    lines += [f"size {name} {size}" for name, size in program.sizes]
    lines += [f"equal {' '.join(program.equal)}"] if program.equal else []
    lines += [f"owner {o.axis}:{o.name} = {' '.join(o.digits)}" for o in program.owners]
    lines += [_param(param) for param in program.params]
    lines += [_buffer(buffer) for buffer in program.buffers]
    lines += [flow_text(flow) for flow in program.flow]
    return "\n".join(lines + _lines(program.steps, "")) + "\n"
