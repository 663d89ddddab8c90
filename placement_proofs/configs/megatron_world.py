"""The number of ranks that a script starts, and the number that Slurm allocates."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from placement_proofs.configs.document import Block, Item
from placement_proofs.configs.shell_expand import merged, scalar, text_of
from placement_proofs.configs.shell_run import Launch, Shell

_WHOLE = re.compile(r"[0-9]{1,9}(_[0-9]{3})*\Z")


def worlds(shell: Shell, launch: Launch, items: Mapping[str, Item]) -> Block:
    """``ranks``: the number of ranks the command starts; ``granted``: what Slurm allocates."""
    flags = {name: item for name, item in items.items() if isinstance(item.value, int)}
    tables = (flags, _variables(shell, launch))
    flags |= _processes(launch)
    found: dict[str, Item] = {}
    if "nnodes" not in items and "nproc_per_node" in flags:
        flags["nnodes"] = Item(1, flags["nproc_per_node"].line, "", given=False)
    for pair in _PRODUCTS:
        table = tables[1] if pair[0].isupper() or pair[0] == "num_gpus=" else flags
        factors = [table[name.rstrip("=")] for name in pair if name.rstrip("=") in table]
        if len(factors) == len(pair):
            found["ranks"] = _product(pair, factors, items)
            break
    granted = _granted(shell)
    if granted:
        found["granted"] = granted
        found.setdefault("ranks", granted)
    return Block(launch.line, found)


_PRODUCTS = (
    ("nproc_per_node", "nnodes"),
    ("actor_num_gpus_per_node", "actor_num_nodes"),
    ("NPROC_PER_NODE", "NNODES"),
    ("WORLD_SIZE",),
    ("num_gpus", "num_nodes"),
    ("ntasks_per_node", "nodes"),
    ("np",),
    ("ntasks",),
    ("DGXNGPU", "DGXNNODES"),
    ("NUM_GPUS",),
    ("num_gpus=",),
)


def _processes(launch: Launch) -> dict[str, Item]:
    """``mpirun -np 16``."""
    for before, word in pairwise(launch.words):
        number = scalar(text_of(word))
        if text_of(before) == "-np" and isinstance(number, int) and number > 0:
            return {"np": Item(number, merged(word, launch.line).line, "-np")}
    return {}


def _product(pair: Sequence[str], factors: Sequence[Item], items: Mapping[str, Item]) -> Item:
    size = 1
    for factor in factors:
        size *= int(str(factor.value)) if not isinstance(factor.value, bool) else 1
    names = " * ".join(name.rstrip("=") for name in pair)
    block = items["@default"].value
    defaults = block.items if isinstance(block, Block) else {}
    used = any(name in defaults for name in pair) or any(f.shown == "default" for f in factors)
    return Item(size, factors[0].line, names, given=not used)


def _variables(shell: Shell, launch: Launch) -> dict[str, Item]:
    """Whole numbers among the variables; one machine where ms-swift is told of no other."""
    found: dict[str, Item] = {}
    pairs = [(name, value[0]) for name, value in shell.variables.items() if len(value) == 1]
    for name, word in [*pairs, *shell.settings.items(), *launch.settings]:
        text, mark = text_of(word), merged(word, 0)
        if _WHOLE.match(text) and not mark.open and int(text.replace("_", "")) > 0:
            shown = "default" if mark.default else name
            found[name] = Item(int(text.replace("_", "")), mark.line, shown)
    if "NPROC_PER_NODE" in found and "NNODES" not in shell.variables:
        found.setdefault("NNODES", Item(1, found["NPROC_PER_NODE"].line, "NNODES"))
    return found


def _granted(shell: Shell) -> Item | None:
    """Machines times GPUs of the ``#SBATCH`` lines."""
    numbers = {}
    for name, value in shell.directives.items():
        text = text_of(value).rpartition(":")[2]
        if text.isdigit() and len(text) < 10:
            numbers[name] = int(text)
    nodes = numbers.get("nodes", numbers.get("N"))
    each = numbers.get("gpus-per-node", numbers.get("gres", numbers.get("ntasks-per-node")))
    if not nodes or not each or each == 1:
        return None
    line = next((w[0].mark.line for n, w in shell.directives.items() if n in ("nodes", "N")), 1)
    return Item(nodes * each, line, "#SBATCH nodes * GPUs")
