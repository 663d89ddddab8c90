"""Pages of the reference that are written from the code: ``python tests/test_docs.py`` does it."""

import inspect
from dataclasses import fields

import click

import placement_proofs
from placement_proofs.cli.app import app
from placement_proofs.cost.convention import CONVENTIONS
from placement_proofs.expression import STRATEGIES
from placement_proofs.layout import Kind
from placement_proofs.placement import State
from placement_proofs.profile import KERNELS, PAPER, PROFILES, REASONS
from placement_proofs.zoo import NAMES, active, elements, named


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def first_line(of):
    return inspect.getdoc(of).partition("\n")[0]


def commands(command=app, path=("placement-proofs",)):
    """Every command with its path, groups before their members."""
    yield " ".join(path), command
    if isinstance(command, click.Group):
        for name, member in sorted(command.commands.items()):
            yield from commands(member, (*path, name))


def commands_page():
    parts = ["# Commands", "What `--help` prints."]
    for name, _ in commands():
        ask = f"{name} --help"
        parts.append(f"## {name}\n\n```console\n$ {ask}\n```")
    return "\n\n".join(parts) + "\n"


DIMS = {0: "samples", 1: "tokens"}


def _modes(strategy, state):
    places = [p for p in strategy.placement.places if p.state is state]
    said = [f"{p.mode.value} on {'*'.join(p.axes)}" if p.axes else p.mode.value for p in places]
    if state is State.ACTIVATIONS:
        flows = [f for f in strategy.placement.flows if f.home.kind is Kind.SHARDED]
        said += [f"S on {f.axis} ({DIMS[f.home.dim]})" for f in flows]
    return ", ".join(dict.fromkeys(said)) or "R"


def _strategy_row(name):
    make = STRATEGIES[name]
    given = {"place": {"dp": 8}, "offload": {}}.get(name, {})
    strategy = make("optimizer") if name == "offload" else make(**given)
    modes = [_modes(strategy, state) for state in State]
    return [f"`{name}`", first_line(make), *modes]


def _options(name):
    signature = inspect.signature(STRATEGIES[name])
    shown = ", ".join(
        str(p).partition(":")[0] + ("" if p.default in (p.empty, None) else f"={p.default!r}")
        for p in signature.parameters.values()
    )
    return f"- `{name}({shown})`"


def strategies_page():
    head = ["strategy", "what it is", *(state.value for state in State)]
    options = "\n".join(_options(name) for name in STRATEGIES)
    return f"""# Strategies

A strategy is a placement: for each of the four states a mode on each axis. Modes are those of
*Placement Semantics* (arXiv 2601.02311, section 3): R replicated, S sharded, S* sharded with
gather, M materialized again, O offloaded. A state that a row does not name is replicated on the
axes of the strategy; some strategies place only some parameter groups, the others being replicated.

{table(head, [_strategy_row(name) for name in STRATEGIES])}

## Expressions

Strategies multiply: `zero3(dp=8) * tensor(tp=4, sequence=True) * pipeline(pp=2, microbatches=16)`
is the Python, the argument on the command line, the line in a TOML file, and what is printed. The
keyword that names a size is the name of the mesh axis. A size is a whole number or a symbol. Each
axis belongs to one strategy; a product that has no meaning is refused with the reason.

{options}
"""


WIDTHS = ("parameter", "gathered", "gradient", "reduction", "optimizer", "activation", "source")


def _profile_row(profile):
    facts = {f.name: getattr(profile, f.name) for f in fields(profile) if f.name != "name"}
    changed = [_fact(n, value) for n, value in facts.items() if value != getattr(PAPER, n)]
    return [f"`{profile.name}`", ", ".join(changed) or "the plan of the paper"]


def _fact(name, value):
    match value:
        case True:
            return f"`{name}`"
        case False:
            return f"not `{name}`"
        case tuple():
            return f"`{name}`: {', '.join(map(str, value))}"
        case _:
            return f"`{name}`: {value}"


def _model_row(name):
    model = named(name)
    used = f"{active(model):,}" if "E" in model.dims else ""
    return [f"`{name}`", f"{elements(model):,}", used]


def profiles_page():
    facts = [[f"`{name}`", text] for name, text in REASONS.items()]
    widths = [[f"`{c.name}`", *(getattr(c, w) for w in WIDTHS)] for c in CONVENTIONS.values()]
    kernels = [[f"`{k}`", f"`{fact}`: {', '.join(v)}"] for k, (fact, v) in KERNELS.items()]
    models = list(map(_model_row, NAMES))
    return f"""# Profiles, conventions, models

## Profiles

Training stacks differ from the plan of the paper in known ways. A profile (`--profile`) is data
that changes the derived plan: what is gathered how long, what is reduced when, what is padded.
`compare` shows what a profile costs, with the reason of each difference.

{table(["profile", "where it differs"], [_profile_row(p) for p in PROFILES.values()])}

The facts:

{table(["fact", "what it decides"], facts)}

Kernels may follow the name of a profile, as in `torch-fsdp2+eager-norm`:

{table(["kernel", "fact"], kernels)}

## Conventions

Bytes per element (`--convention`). *reduction* is a gradient on the wire, *optimizer* is K, all
bytes that the optimizer keeps for one parameter.

{table(["convention", *WIDTHS], widths)}

## Models

Parameters of the built-in shapes (`--model`), and those that one token uses where there are
experts; `abstract` is one tensor of Psi parameters.

{table(["model", "parameters", "active"], models)}
"""


GENERATED = {
    "reference/commands.md": commands_page,
    "reference/strategies.md": strategies_page,
    "reference/profiles.md": profiles_page,
}

PUBLIC = placement_proofs.__all__
