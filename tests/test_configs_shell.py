"""The shell reader: words, variables, branches; nothing is executed."""

from __future__ import annotations

import time

import pytest

from placement_proofs.configs.document import Block, Item
from placement_proofs.configs.megatron_args import parse_arguments
from placement_proofs.configs.shell_expand import arithmetic, text_of
from placement_proofs.configs.shell_run import Shell
from placement_proofs.errors import IllFormed


def commands(text: str) -> list[list[str]]:
    shell = Shell("a.sh")
    shell.read(text)
    return [[text_of(word) for word in launch.words] for launch in shell.launches]


def flag(text: str, name: str = "tensor_model_parallel_size") -> Item | None:
    return parse_arguments(text, "a.sh").items.get(name)


RUN = "python pretrain_gpt.py --num-layers 8 --hidden-size 64 "


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("run a b", ["run", "a", "b"]),
        ("A=4\nrun $A ${A} \"$A x\" '$A'", ["run", "4", "4", "4 x", "$A"]),
        ("run ${A:-4} ${B-5}", ["run", "4", "5"]),
        ('A="x y"\nrun $A "$A"', ["run", "x", "y", "x y"]),
        ('A=(1 2)\nA+=(3)\nrun ${A[@]} "${A[*]}"', ["run", "1", "2", "3", "1 2 3"]),
        ("A=2\nB=3\nrun $((A*B)) $(( ($A + ${B}) / 2 ))", ["run", "6", "2"]),
        ("run a \\\n  b # c\n", ["run", "a", "b"]),
        ("run a#b", ["run", "a#b"]),
        (': "${A:=7}"\nrun $A', ["run", "7"]),
        ("export A=1 B=2\nrun $A$B", ["run", "12"]),
        ("A=1_000\nrun ${A//_}", ["run", "1000"]),
        ("A=1; A+=2; run $A", ["run", "12"]),
        ("if [ 1 -gt 2 ]; then A=1; elif [ x = x ]; then A=2; else A=3; fi\nrun $A", ["run", "2"]),
        ('[[ "$A" == b ]] || A=c\nA=b\n[[ $A == b && 1 -le 1 ]] && A=d\nrun $A', ["run", "d"]),
        ("run a > out 2>&1 | tee log", ["run", "a"]),
        ("A='x y' run b", ["run", "b"]),
        ("declare -a A=(1 \\\n 2)\nrun ${A[@]}", ["run", "1", "2"]),
        ("run $(date +%s)x", ["run", "$(date +%s)x"]),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert commands(text)[-1] == words


def test_a_command_in_quotes_is_read_again() -> None:
    assert commands("N=4\nsrun bash -c \"run --n $N --r \\$R\"")[0] == [
        "run", "--n", "4", "--r", "${R}",
    ]  # fmt: skip
    assert ["run", "--n", "4"] in commands("export N=4\nsrun bash -c 'run --n $N'")
    assert ["run", "4"] in commands('N=4\nCMD="run $N"\neval $CMD')


def test_functions_run_where_they_are_called() -> None:
    text = 'f() {\n run $A "$1" "$@"\n}\nA=2\nf x y\nf\n'
    assert commands(text) == [["run", "2", "x", "x", "y"], ["run", "2", "${1}", "${@}"]]
    assert commands("function f { run $A; }\nA=2\n") == [["run", "2"]]
    assert commands("f() { f; run; }\nf\n")[0] == ["run"]


def test_a_heredoc_of_a_shell_is_read_and_one_of_a_file_is_kept() -> None:
    text = "N=4\nsbatch <<EOF\n#SBATCH --nodes=2\nrun $N \\$M\nEOF\n"
    text += 'cat <<EOT > c.json\n{"a": $N}\nEOT\n'
    shell = Shell("a.sh")
    shell.read(text)
    assert [text_of(w) for w in shell.launches[0].words] == ["run", "4", "${M}"]
    assert [(h.target, text_of(h.pieces).strip()) for h in shell.heres] == [("c.json", '{"a": 4}')]
    assert text_of(shell.directives["nodes"]) == "2"


def test_a_quoted_heredoc_is_not_expanded() -> None:
    shell = Shell("a.sh")
    shell.read("N=4\ncat <<'EOT' > c\n$N\nEOT\n")
    assert text_of(shell.heres[0].pieces) == "$N\n"


@pytest.mark.parametrize(
    ("text", "value", "line", "table"),
    [
        (RUN + "--tensor-model-parallel-size 4", 4, 1, ""),
        (RUN + "--tensor_model_parallel_size=4", 4, 1, ""),
        ("TP=4\n" + RUN + "\\\n --tensor-model-parallel-size $TP", 4, 3, "@set"),
        (RUN + "--tensor-model-parallel-size ${TP:-4}", 4, 1, "@default"),
        (RUN + "--tensor-model-parallel-size $TP", "${TP}", 1, "@open"),
        (RUN + "--tensor-model-parallel-size ${10}", "${10}", 1, "@open"),
        ("case $M in a) TP=1;; b) TP=8;; esac\n" + RUN + "--tensor-model-parallel-size $TP",
         "${TP}", 2, "@open"),
        ("TP=2\nif [ $M = a ]; then TP=8; fi\n" + RUN + "--tensor-model-parallel-size $TP",
         "${TP}", 3, "@open"),
        ("for TP in 1 2; do\n" + RUN + "--tensor-model-parallel-size 2\ndone", None, 0, "@maybe"),
        (RUN + "--tensor-model-parallel-size 2 --tensor-model-parallel-size 4", 4, 1, ""),
    ],
)  # fmt: skip
def test_flags(text: str, value: object, line: int, table: str) -> None:
    block = parse_arguments(text, "a.sh")
    item = block.items.get("tensor_model_parallel_size")
    assert (item.value if item else None) == value
    assert item is None or item.line == line
    if table:
        origins = block.items[table].value
        assert isinstance(origins, Block)
        assert "tensor_model_parallel_size" in origins.items


def test_a_flag_in_an_undecided_branch_is_set_apart() -> None:
    text = (
        'ARGS="--bf16"\nif [ $X = 1 ]; then ARGS="$ARGS --sequence-parallel"; fi\n' + RUN + "$ARGS"
    )
    block = parse_arguments(text, "a.sh")
    assert block.items["bf16"].value is True
    assert "sequence_parallel" not in block.items
    maybe = block.items["@maybe"].value
    assert isinstance(maybe, Block) and maybe.items["sequence_parallel"].line == 2


@pytest.mark.parametrize(
    ("before", "inside"),
    [
        ("", 'A="$A --fp16"'),
        ("", "A=(--fp16)"),
        ('A=""\n', "A+=' --fp16'"),
        ('A="--bf16 "\n', "A+=' --fp16'"),
        ('A="--bf16 "\n', 'A="$A --fp16"'),
        ("A=()\n", "A=(${A[@]} --fp16)"),
        ("A=(--bf16)\n", "A+=(--fp16)"),
    ],
)
def test_alternatives_of_a_branch_are_marked(before: str, inside: str) -> None:
    block = parse_arguments(f"{before}if [ $X = 1 ]; then {inside}; fi\n{RUN} ${{A[@]}}", "a.sh")
    maybe = block.items["@maybe"].value
    assert isinstance(maybe, Block) and "fp16" in maybe.items
    assert "fp16" not in block.items
    assert ("bf16" in block.items) == ("bf16" in before)


def test_repeated_flags_are_remembered() -> None:
    block = parse_arguments(RUN + "\\\n--seq-length 8 \\\n--seq-length 16", "a.sh")
    assert block.repeated == (("seq_length", 2),)


def test_arguments_without_a_command_are_taken_from_variables() -> None:
    block = parse_arguments('A="--num-layers 8 \\\n --hidden-size 64"\n', "a.sh")
    assert block.items["hidden_size"].value == 64
    assert block.items["hidden_size"].line == 2


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("torchrun --nproc_per_node 8 --nnodes 2 " + RUN, 16),
        ("torchrun --nproc-per-node=8 x.py --num-layers 8 --hidden-size 64", 8),
        ("WORLD_SIZE=$((8*4))\n" + RUN, 32),
        ("NPROC_PER_NODE=4 " + RUN, 4),
        ("#SBATCH --nodes=2\n#SBATCH --gres=gpu:a100:4\nsrun " + RUN, 8),
        ("#SBATCH -N 2\n#SBATCH --ntasks-per-node=8\nexport WORLD_SIZE=$SLURM_NTASKS\n" + RUN, 16),
        ("mpirun -np 12 " + RUN, 12),
        (RUN + "--actor-num-nodes 4 --actor-num-gpus-per-node 8", 32),
        ("torchrun --nproc_per_node $GPUS --nnodes 2 " + RUN, None),
        ("torchrun --nproc_per_node 8 --nnodes $N " + RUN, None),
        (RUN, None),
    ],
)
def test_world(text: str, ranks: int | None) -> None:
    world = parse_arguments(text, "a.sh").items["@world"].value
    assert isinstance(world, Block)
    item = world.items.get("ranks")
    assert (item.value if item else None) == ranks


@pytest.mark.parametrize(
    "text",
    ["run 'a", 'run "a', "A=(1 2", "run $(a", "run ${a", "cat <<EOF\nx\n", "run `a", "run $((1"],
)
def test_unclosed_text_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(IllFormed, match=r"a\.sh:1: "):
        commands(text)


@pytest.mark.parametrize(
    "text",
    [
        "A=aaaaaaaa\n" + 'A="$A$A"\n' * 60,
        "{ " * 80 + "}" * 80,
        "${A:-" * 40 + "}" * 40,
        "a " * 60_000,
        "x" * 1_100_000,
        "if true; then " * 60,
        "a() { run; }\n"
        + "".join(f"{y}() {{ {f'{x};' * 200} }}\n" for x, y in ("ab", "bc", "cd"))
        + "d\n",
        "".join(f"A{n}=1\n" for n in range(5000)) + "if [ $X ]; then B=1; fi\n" * 3000,
    ],
)
def test_bombs_are_refused_quickly(text: str) -> None:
    begin = time.perf_counter()
    with pytest.raises(IllFormed):
        commands(text)
    assert time.perf_counter() - begin < 2


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2*3", 6),
        ("7/2", 3),
        ("(1+2)%2", 1),
        ("A > 1 ? 5 : 6", 5),
        ("A == 3", 1),
        ("-A", -3),
        ("B+1", None),
        ("1/0", None),
        ("2**99999", None),
        ("__import__('os')", None),
        ("a.b", None),
        ("1" * 400, None),
    ],
)
def test_arithmetic(text: str, value: int | None) -> None:
    assert arithmetic(text, {"A": 3}.get) == value
