"""Python source as data: the calls that set up a trainer. Parsed, never run."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator

from placement_proofs.configs.document import Block, Item, Value, words
from placement_proofs.errors import IllFormed

MAX_CHARACTERS = 1_000_000
_TRAINERS = ("Trainer", "Fabric")
_POSITIONAL = {"ModelParallelStrategy": ("data_parallel_size", "tensor_parallel_size")}


def parse_source(text: str, file: str) -> Block:
    """The arguments of the first trainer and of its strategy.

    Raises:
        IllFormed: not Python.
    """
    tree, shift = _tree(text, file)
    names = _names(tree)
    trainer = next(_calls(tree, _TRAINERS), None)
    items: dict[str, Item] = {}
    if trainer is None:
        chosen = next(_calls(tree, ()), None)
        if chosen is None:
            return Block()
        items["@trainer"] = Item(Block(chosen.lineno - shift, {}), chosen.lineno - shift)
        items["@strategy"] = _strategy(chosen, names, shift)
    else:
        line = trainer.lineno - shift
        arguments = _arguments(trainer, names, shift)
        items["@trainer"] = Item(Block(line, arguments), line)
        items["@strategy"] = _found(trainer, names, shift)
    items["@lightning"] = Item(True, 1)
    sharded = any(_name(node.func) == "fully_shard" for node in _every_call(tree))
    items["@strategy"] = _with(items["@strategy"], "@fully_shard", Item(sharded, 1))
    return Block(1, items)


def _with(item: Item, key: str, value: Item) -> Item:
    block = item.value
    assert isinstance(block, Block)
    return Item(Block(block.line, {**block.items, key: value}), item.line)


def _tree(text: str, file: str) -> tuple[ast.Module, int]:
    """The syntax tree; an excerpt that begins indented is read inside a block."""
    if len(text) > MAX_CHARACTERS:
        rule = f"source has at most {MAX_CHARACTERS:,} characters"
        raise IllFormed(file, f"{len(text):,} characters", rule, "is this the right file?")
    first: IllFormed | None = None
    for prefix in ("", "if True:\n"):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return ast.parse(prefix + text), prefix.count("\n")
        except SyntaxError as error:
            line = error.lineno or 1
            reason = (error.msg or "unreadable")[:80]
            first = first or IllFormed(
                f"{file}:{line}", f"no Python ({reason})", "the file is read as Python", "correct"
            )
        except (ValueError, RecursionError, MemoryError):
            break
    raise first or IllFormed(file, "no Python", "the file is read as Python", "correct it")


def _every_call(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _calls(tree: ast.AST, names: tuple[str, ...]) -> Iterator[ast.Call]:
    """Calls of ``names``; without names, of strategies of Lightning."""
    for node in _every_call(tree):
        name = _name(node.func)
        if name in names or (not names and name in STRATEGIES):
            yield node


STRATEGIES = words(
    "DDPStrategy FSDPStrategy DeepSpeedStrategy ModelParallelStrategy MegatronStrategy"
)


def _names(tree: ast.AST) -> dict[str, list[ast.expr]]:
    """What is assigned to simple names."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found.setdefault(name, []).append(value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                found.setdefault(name, []).append(value)
    return found


def _found(trainer: ast.Call, names: dict[str, list[ast.expr]], shift: int) -> Item:
    """The strategy of a trainer: in its argument, or assigned to the name given there."""
    given = next((k.value for k in trainer.keywords if k.arg == "strategy"), None)
    line = trainer.lineno - shift
    candidates = [given] if given is not None else []
    if isinstance(given, ast.Name):
        candidates = list(names.get(given.id, []))
    calls = [c for c in candidates if isinstance(c, ast.Call) and _name(c.func) in STRATEGIES]
    if calls:
        item = _strategy(calls[0], names, shift)
        several = len(candidates) > 1
        return _with(item, "@several", Item(several, item.line))
    texts = [c for c in candidates if isinstance(c, ast.Constant) and isinstance(c.value, str)]
    if texts:
        line = texts[0].lineno - shift
        return Item(Block(line, {"@name": Item(str(texts[0].value), line, "strategy")}), line)
    opened = {"@name": Item("${strategy}", line, "strategy")} if candidates or given else {}
    return Item(Block(line, opened), line)


def _strategy(call: ast.Call, names: dict[str, list[ast.expr]], shift: int) -> Item:
    line = call.lineno - shift
    name = _name(call.func)
    items = _arguments(call, names, shift)
    for key, node in zip(_POSITIONAL.get(name, ()), call.args, strict=False):
        items.setdefault(key, Item(_literal(node, names), node.lineno - shift, key))
    items["@name"] = Item(name, line, name)
    return Item(Block(line, items), line)


def _arguments(call: ast.Call, names: dict[str, list[ast.expr]], shift: int) -> dict[str, Item]:
    return {
        k.arg: Item(_literal(k.value, names), k.value.lineno - shift, k.arg)
        for k in call.keywords
        if k.arg is not None
    }


def _literal(node: ast.expr, names: dict[str, list[ast.expr]], depth: int = 0) -> Value:
    """A written value; a name that is assigned once; anything else is open."""
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return tuple(_literal(e, names, depth + 1) for e in elements) if depth < 8 else None
        case ast.Dict(keys=keys, values=values) if depth < 8:
            return _block(keys, values, names, node.lineno, depth)
        case ast.Name(id=name) if depth < 8 and len(names.get(name, ())) == 1:
            return _literal(names[name][0], names, depth + 1)
        case ast.Call(func=func):
            return f"${{{_name(func)}()}}"
        case _:
            return f"${{{ast.unparse(node)[:40] if depth < 4 else 'value'}}}"


def _block(
    keys: list[ast.expr | None],
    values: list[ast.expr],
    names: dict[str, list[ast.expr]],
    line: int,
    depth: int,
) -> Block:
    pairs = [(k, v) for k, v in zip(keys, values, strict=True) if isinstance(k, ast.Constant)]
    return Block(
        line, {str(k.value): Item(_literal(v, names, depth + 1), k.lineno) for k, v in pairs}
    )
