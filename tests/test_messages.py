"""Whole texts of refusals: one line on standard error, exit code 2, quickly, no traceback."""

import pytest

from placement_proofs.configs import IMPORTERS

STRATEGIES = (
    "the strategies are single, data, zero1, zero2, zero3, fsdp, hsdp, tensor, pipeline, context, "
    "ulysses, expert, offload, recompute, accumulate, place"
)
SIZE = "a size is a whole number from 1 to 1,000,000,000 or the name of a symbol"
ARGUMENT = "an argument is a number, a symbol, a text, True, False or a tuple of axis names"
JOINED = "strategies are joined by * only; write zero3(dp=8) * tensor(tp=4)"
WRITE = 'write strategies joined by *, such as "zero3(dp=8) * tensor(tp=4)"'
FORMATS = ", ".join(importer.name for importer in IMPORTERS)
MODELS = (
    "a model is dense, moe, tiny, abstract, perceptron, a published one such as gpt2 or llama-7b, "
    "a TOML file or a config.json"
)

EXPRESSIONS = {
    "": f"expression: found ''; not an expression (invalid syntax); {WRITE}",
    "zero3(dp=0)": f"zero3(dp=...): found 0; {SIZE}; write dp=8 or dp=N",
    "zero3(dp=-4)": f"zero3(dp=...): found -4; {SIZE}; write dp=8 or dp=N",
    "data(dp=True)": f"data(dp=...): found True; {SIZE}; write dp=8 or dp=N",
    "zero3(dp=8.5)": f"expression: found 8.5; {ARGUMENT}; write dp=8 or dp=N",
    "data(dp=99999999999)": f"data(dp=...): found 99999999999; {SIZE}; write dp=8 or dp=N",
    "data(dp='a b')": f"data(dp=...): found 'a b'; {SIZE}; write dp=8 or dp=N",
    "zero3(dp=8": (
        f"expression: found 'zero3(dp=8'; not an expression ('(' was never closed); {WRITE}"
    ),
    "zero4(dp=8)": f"expression: found zero4(dp=8); {STRATEGIES}; did you mean zero3?",
    "tenser(tp=2)": f"expression: found tenser(tp=2); {STRATEGIES}; did you mean tensor?",
    "__import__('os').system('x')": (
        f"expression: found __import__('os').system('x'); {STRATEGIES}; "
        "name one of them, or a file that exists"
    ),
    "data(dp=__import__('os').system('x'))": (
        f"expression: found __import__('os').system('x'); {ARGUMENT}; write dp=8 or dp=N"
    ),
    "lambda: 0": (
        f"expression: found lambda: 0; {STRATEGIES}; name one of them, or a file that exists"
    ),
    "zero3(tp=8)": (
        "expression: found zero3(tp=8); has no keyword argument 'tp'; "
        "see: zero3(dp=..., shard_over=...)"
    ),
    "nofile": f"expression: found nofile; {STRATEGIES}; name one of them, or a file that exists",
    "ddp(dp=8)": f"expression: found ddp(dp=8); {STRATEGIES}; write data(dp=8)",
    "TP(tp=2)": f"expression: found TP(tp=2); {STRATEGIES}; write tensor(tp=8)",
    "place(dp=8, optimiser='S')": (
        "place(...): found axes dp, optimiser; beside group, parameters, optimizer, gradients and "
        "batch: one axis at a time; correct a name, or multiply one place(...) for each axis"
    ),
    "place(dp=8, group='experts', optimizer='S', batch='S(0)')": (
        "place(group=...): found 'experts'; the parameter groups of model dense are embedding, "
        "norm, column, kv, row, head; name one of them, or leave group out for all"
    ),
    "data(dp=8) + tensor(tp=2)": f"expression: found '+'; {JOINED}",
    "data(dp=8)**2": f"expression: found '**'; {JOINED}",
    "zero3(dp=8) * data(dp=2)": (
        "zero3(dp=8) * data(dp=2): found axis dp of zero3(dp=8) and of data(dp=2); each mesh axis "
        "belongs to one strategy; keep one of zero3 and data"
    ),
    "zero3(dp=8, shard_over=('dp', 'xx'))": (
        "zero3(dp=8, shard_over=('dp', 'xx')): found shard_over names xx; the mesh has the axes "
        "dp; multiply by the strategy that brings the axis, or leave it out"
    ),
    "pipeline(pp=2, schedule='x')": (
        "pipeline(schedule=...): found 'x'; a schedule is one of gpipe, 1f1b, interleaved, "
        'zb-h1, zb-h2; write schedule="1f1b"'
    ),
    "tensor(tp=3)": (
        "attention layers.attention: found 32 heads on tp = 3; each rank computes whole heads; "
        "choose tp to divide 32"
    ),
    "pipeline(pp=5, microbatches=8)": (
        "size L/pp: found 32 / 5; L is cut into equal parts by pp; "
        "choose sizes of which 5 divides L"
    ),
    "(" * 500 + "1" + ")" * 500: (
        f"expression: found {'(' * 80!r}; not an expression (too many nested parentheses); {WRITE}"
    ),
    "data(dp=8) * " * 1000 + "single()": (
        "expression: found 13,008 characters; at most 10,000; shorten it"
    ),
    "nofile.toml": (
        "nofile.toml: found no such file; a file to check must exist; correct the path"
    ),
}

OPTIONS = {
    ("check", "data(dp=8)", "--model", "nope"): (
        f"--model: found 'nope'; {MODELS}; name one of them or give the path of a file with "
        "layers, hidden, heads, ..."
    ),
    ("check", "data(dp=8)", "--convention", "nope"): (
        "convention: found 'nope'; the conventions are zero-paper, fp32-gradients, "
        "megatron, fp32, bf16-only, adam-8bit, sgd-momentum, cast, cast-reduce-16, "
        "megatron-report, simumax, simumax-sdp, llm-analysis, mlsysim, blocks-only, "
        "deepspeed-zero2, deepspeed-zero3, primus; write --convention zero-paper"
    ),
    ("check", "data(dp=8)", "--profile", "nope"): (
        "--profile: found 'nope'; profiles are paper, torch-ddp, torch-fsdp2, "
        "torch-fsdp2-resharded, torch-fsdp1, "
        "torch-zero1, torch-tp, torch-sp, megatron, xla, deepspeed, deepspeed-zero3; kernels to "
        "add are eager-norm, eager-attention, eager-loss, fused-attention; name one of them, such "
        "as torch-fsdp2+eager-norm"
    ),
    ("check", "data(dp=8)", "--without", "frob x"): (
        "deviation: found 'frob x'; a deviation begins with one of drop, duplicate, insert, "
        "replace, rescale, "
        'regroup, reorder, overwrite; write "drop all-reduce gradient dp"'
    ),
    ("check", "data(dp=8)", "--without", "drop all-gather"): (
        "deviation drop all-gather: found no such step in the plan; the plan has accumulate, "
        "all-reduce gradient dp phase=reduce, scale; select one of them"
    ),
    ("check", "data(dp=8)", "--world", "x"): (
        "command line: found Invalid value for '--world': 'x' is not a valid integer; usage: "
        "placement-proofs check [OPTIONS] SUBJECT...; see placement-proofs check -h"
    ),
    ("check", "data(dp=2)", "--world", "8"): (
        "--world: found 8; the axes of data(dp=2) multiply to 2 ranks; correct a size, or leave "
        "the option out: it is for configuration files"
    ),
    ("check", "examples/two_machines.toml", "--world", "64"): (
        "--world: found 64; the axes of hsdp(dp_replicate=2, dp_shard=4) * tensor(tp=2, "
        "sequence=True) multiply to 2 * 4 * 2 ranks; correct a size, or leave the option out: it "
        "is for configuration files"
    ),
    ("check", "examples/programs/loop.toml", "--without", "drop scale"): (
        "--without: found ('drop scale',); an element program says itself what the ranks do; "
        "leave the option out"
    ),
    ("check", "examples"): (
        "examples: found a folder; a file to check must exist; correct the path"
    ),
    ("check", "a" * 300): (
        f"{'a' * 80}: found file name too long; files to read must be readable; correct the path"
    ),
    ("check",): (
        "command line: found Missing argument 'SUBJECT...'; usage: "
        "placement-proofs check [OPTIONS] SUBJECT...; see placement-proofs check -h"
    ),
    ("check", "data(dp=8)", "--frob"): (
        "command line: found No such option '--frob'; usage: "
        "placement-proofs check [OPTIONS] SUBJECT...; see placement-proofs check -h"
    ),
    ("check", "examples/configs/deepspeed_zero3.json", "--world", "0"): (
        "world: found 0; a world is a whole number of ranks from 1 to 1,000,000,000; "
        "pass --world 64"
    ),
    ("check", "examples/configs/deepspeed_zero3.json", "--format", "nope"): (
        f"format: found 'nope'; the formats are {FORMATS}; name one of them"
    ),
    ("formula", "data(dp=N)", "--set", "N=x"): (
        "--set: found 'N=x'; a size is a name and a whole number from 1; write N_dp=64"
    ),
    ("formula", "data(dp=N)", "--set", "N=0"): (
        "--set: found 'N=0'; a size is a name and a whole number from 1; write N_dp=64"
    ),
    ("formula", "data(dp=h)"): (
        "symbol h: found also a size of the model dense or of every model; one name means one "
        "size; write another symbol, such as N_h"
    ),
    ("compare", "data(dp=N)"): ("compare: found 1 composition; a ratio needs two; add another"),
    ("simulate", "data(dp=8)", "--size", "tp=3"): (
        "--size: found tp=3; the sizes are dp, micro; name one"
    ),
    ("simulate", "examples/programs/loop.toml"): (
        "examples/programs/loop.toml: found an element program; it has no placement, hence no cost "
        "or simulation; give a composition"
    ),
    ("prove",): (
        "command line: found no theory; prove runs the theories that are named, or all; "
        "write prove --all, or see prove --list"
    ),
}

FILES = {
    "keys.toml": (
        'composition = "data(dp=2)"\nmodle = "moe"\n',
        "{path}: modle: found 'moe'; a composition file has composition, loss, model, profile, "
        "without; rename or remove it",
    ),
    "types.toml": (
        "composition = 3\n",
        '{path}: composition: found 3; a text; write composition = "..."',
    ),
    "code.toml": (
        "composition = \"__import__('os').system('x')\"\n",
        "{path}: found __import__('os').system('x'); " + STRATEGIES + "; "
        "name one of them, or a file that exists",
    ),
    "shape.toml": (
        'composition = "data(dp=2)"\n[model]\nlayers = -3\n',
        "{path}: model: layers: found -3; a whole number; write layers = 8",
    ),
    "broken.toml": (
        "composition = ",
        "{path}: found Invalid value (at end of document); the file is TOML in UTF-8; correct it",
    ),
    "bomb.yaml": (
        "a: &a [x, x, x, x, x, x, x, x, x]\n"
        + "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in ("ab", "bc", "cd", "de"))
        + "distributed_type: FSDP\nnum_processes: *e\n",
        "bomb.yaml:5: found more values; a configuration has at most 20,000 values, aliases "
        "written out; write the values without aliases",
    ),
}


def refused(run, arguments, message):
    ran = run(*arguments)
    assert ran.err == f"error: {message}\n"
    assert (ran.code, ran.out) == (2, "")


@pytest.mark.parametrize("text", EXPRESSIONS, ids=lambda text: text[:30] or "empty")
def test_expressions(run, text):
    refused(run, ("check", text), EXPRESSIONS[text])


@pytest.mark.parametrize("arguments", OPTIONS, ids=" ".join)
def test_options(run, arguments):
    refused(run, arguments, OPTIONS[arguments])


@pytest.mark.parametrize("name", FILES)
def test_files(run, tmp_path, name):
    content, message = FILES[name]
    path = tmp_path / name
    path.write_text(content)
    refused(run, ("check", str(path)), message.format(path=path))


def test_a_file_that_is_too_large(run, tmp_path):
    path = tmp_path / "huge.json"
    path.write_text(" " * 10_000_001)
    refused(
        run,
        ("check", str(path)),
        f"{path}: found 10,000,001 bytes; configuration files have at most 10,000,000 bytes; "
        "give the configuration, not a log or a checkpoint",
    )


@pytest.mark.parametrize("text", ["data(dp=8)\x1b[31m", "data(\ndp=0)", "zero4('\x07\u202e')"])
def test_control_characters_do_not_reach_the_terminal(run, text):
    ran = run("check", text)
    assert ran.code == 2
    assert ran.err.count("\n") == 1 and ran.err.rstrip("\n").isprintable()
