"""The command line: exit codes, JSON, help, terminals, interruptions, our own faults."""

import json
import re
import shlex
import subprocess
import sys

import pytest
from conftest import ROOT

COMMANDS = ("check", "formula", "compare", "simulate", "explain", "prove")
CONDITIONS = ("gradient_integrity", "state_consistency", "norm_integrity")
DROP = ("--without", "drop all-reduce gradient dp")


def json_of(run, *arguments):
    ran = run(*arguments, "--json")
    return json.loads(ran.out), ran


WRITES = ("-o", "--figures")
"""Options whose value is a file or a folder to write."""


def examples():
    from placement_proofs.cli.app import app

    for name, command in app.commands.items():
        for line in re.findall(r"^  placement-proofs (.*)$", command.help, re.MULTILINE):
            yield pytest.param(shlex.split(line), id=f"{name}: {line}")


@pytest.mark.parametrize("arguments", list(examples()))
def test_examples_in_help_run(run, arguments, tmp_path):
    pairs = zip(["", *arguments], arguments, strict=False)
    ran = run(*(str(tmp_path / a) if option in WRITES else a for option, a in pairs))
    assert ran.code in (0, 1) and ran.out
    assert not ran.err or arguments[0] == "convert", "convert says what it chose"
    assert (ran.code == 1) == bool({"--without", "--why-not"} & set(arguments))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_examples(run, name):
    ran = run(name, "--help")
    assert ran.code == 0 and f"placement-proofs {name}" in ran.out and "--json" in ran.out


def test_the_bare_command_shows_help(run):
    ran = run()
    assert ran.code == 0 and all(name in ran.out for name in COMMANDS)


def test_version(run):
    assert re.fullmatch(r"placement-proofs \d+\.\d+\.\d+\n", run("--version").out)


# --- check ---------------------------------------------------------------------------


def test_check_proved(run):
    found, ran = json_of(run, "check", "zero3(dp=8) * tensor(tp=4, sequence=True)")
    assert ran.code == 0
    assert found["schema"] == "placement-proofs/check/1"
    assert found["composition"] == "zero3(dp=8) * tensor(tp=4, sequence=True)"
    assert found["verdict"] == "proved" and found["counterexample"] is None
    for name in CONDITIONS:
        assert found["conditions"][name]["verdict"] == "proved"
        assert "all sizes of dp, tp" in found["conditions"][name]["covers"]
        assert "assumptions" in found["conditions"][name]
    assert found["memory"]["persistent"] > 0 and found["communication"]["total"] > 0
    assert {"repairs", "warnings"} <= set(found)


def test_check_refuted(run):
    found, ran = json_of(run, "check", "data(dp=8)", *DROP)
    assert ran.code == 1 and found["verdict"] == "refuted"
    example = found["counterexample"]
    assert example["condition"] == "gradient_integrity"
    assert example["mesh"] == {"dp": 2}
    assert example["expected"] != example["got"]
    assert example["tensors"] and example["contributions"] and example["step_text"]
    assert found["repairs"][0]["verdict"] == "proved"
    assert found["repairs"][0]["change"] == "undo: drop all-reduce gradient dp"


@pytest.mark.parametrize(
    ("subject", "change"),
    [
        ("data(dp=8)", "drop all-reduce gradient dp"),
        ("data(dp=8)", "drop scale"),
        ("tensor(tp=4, sequence=True)", "drop all-reduce gradient tp group=norm"),
        ("hsdp(dp_replicate=2, dp_shard=4)", "drop all-reduce gradient dp_replicate"),
        ("zero1(dp=8)", "drop all-gather parameter dp"),
        ("accumulate(micro=4)", "overwrite accumulate"),
    ],
)
def test_common_faults_are_refuted_with_a_proved_repair(run, subject, change):
    found, ran = json_of(run, "check", subject, "--without", change)
    assert ran.code == 1
    assert [r["verdict"] for r in found["repairs"]] == ["proved"]


def test_check_reads_a_program(run):
    found, ran = json_of(run, "check", "examples/programs/zero1_without_publish.toml")
    assert ran.code == 1
    assert set(CONDITIONS) <= set(found["conditions"])
    assert found["conditions"]["state_consistency"]["verdict"] == "refuted"


def test_check_reads_a_configuration(run):
    found, ran = json_of(run, "check", "examples/configs/deepspeed_zero3.json", "--world", "64")
    assert ran.code == 0
    assert found["composition"].startswith("zero3(dp=64)")
    assert found["source"]["format"] == "deepspeed"
    assert {f["name"] for f in found["source"]["fields"]} >= {"world", "dp", "micro_batch"}


def test_a_missing_world_is_reported_not_guessed(run):
    found, ran = json_of(run, "check", "examples/configs/gptneox.yml")
    assert ran.code == 0
    assert found["composition"].startswith("zero1(dp='N')")
    assert any("--world" in warning for warning in found["warnings"])
    assert found["memory"] is None and "symbols" in found["notes"][0]


def test_what_a_file_leaves_open_is_unknown(run, tmp_path):
    path = tmp_path / "launch.yaml"
    path.write_text(
        "distributed_type: DEEPSPEED\nnum_processes: 8\n"
        "deepspeed_config:\n  deepspeed_config_file: absent.json\n"
    )
    found, ran = json_of(run, "check", str(path))
    assert ran.code == 3 and found["verdict"] == "unknown"
    assert "zero_stage" in found["conditions"]["gradient_integrity"]["reason"]


def test_the_cost_of_a_repair_may_be_a_fraction_of_a_byte(run):
    subject = "hsdp(dp_replicate=2, dp_shard=4) * tensor(tp=4) * context(cp=2)"
    ran = run("check", subject, "--without", "drop all-reduce gradient dp_replicate")
    assert ran.code == 1
    assert re.search(r"proved; \+[\d,]+ bytes sent per rank and step", ran.out)


def test_ill_formed_input_as_json(run):
    found, ran = json_of(run, "check", "zero4(dp=8)")
    assert ran.code == 2 and ran.err.startswith("error: expression: found zero4(dp=8); ")
    assert found["verdict"] == "ill-formed"
    assert set(found["error"]) == {"place", "found", "rule", "remedy"}


def test_usage_errors_as_json(run):
    found, ran = json_of(run, "check")
    assert ran.code == 2 and found["error"]["place"] == "command line"


def test_several_subjects(run):
    ran = run("check", "data(dp=8)", "zero3(dp=8)")
    assert ran.code == 0 and ran.out.endswith("2 subjects: 2 proved\n")
    found, ran = json_of(run, "check", "data(dp=8)", "zero4(dp=8)")
    assert ran.code == 2 and found["verdict"] == "ill-formed"
    assert [r["verdict"] for r in found["reports"]] == ["proved", "ill-formed"]


def test_a_convention_changes_the_numbers_and_is_named(run):
    first, second = (
        run("check", "data(dp=8)", "--convention", name) for name in ("zero-paper", "fp32")
    )
    assert "convention zero-paper: 2+2+12" in first.out
    assert "convention fp32: 4+4+8" in second.out


def test_sizes_do_not_change_the_work(run):
    small, large = (run("check", f"zero3(dp={n})") for n in (2, 1_000_000))
    assert small.code == large.code == 0
    assert small.out.partition("memory")[0].replace("=2)", "") == large.out.partition("memory")[
        0
    ].replace("=1000000)", "")


# --- the other commands --------------------------------------------------------------


def test_formula_formats(run):
    asked = ("formula", "zero3(dp=N)", "--model", "abstract")
    assert "persistent = Psi*(K + 4)/N" in run(*asked).out
    assert run(*asked, "--format", "latex").out.startswith("\\begin{align*}")
    python = run(*asked, "--format", "python").out
    scope = {}
    exec(python, scope)
    assert scope["memory_persistent"](Psi=7_500_000_000, K=12, N=64) == 1_875_000_000
    found, _ = json_of(run, *asked, "--set", "N=64", "--of", "memory")
    assert found["numbers"]["memory_persistent"]["bytes"] == 1_875_000_000
    assert not [name for name in found["forms"] if name.startswith("communication")]


def test_formula_terms_say_where_they_come_from(run):
    out = run("formula", "zero3(dp=N)", "--model", "abstract", "--terms").out
    assert "gather before use (forward)" in out and "sum of the ranks' parts" in out


def test_compare_states_the_headline(run):
    out = run("compare", "data(dp=N)", "zero2(dp=N)", "zero3(dp=N)", "--model", "abstract").out
    assert "memory of data(dp='N') / memory of zero3(dp='N') = N\n" in out
    assert "traffic of zero3(dp='N') / traffic of data(dp='N') = 3/2\n" in out
    assert "the memory ratio is 8 exactly when N = 8" in out
    assert "as N grows: memory ratio to 8, traffic ratio to 1" in out


@pytest.mark.parametrize(
    "subject",
    [
        "zero3(dp=64) * tensor(tp=8, sequence=True)",
        "data(dp=8) * pipeline(pp=4, microbatches=16)",
        "zero1(dp=N) * expert(ep=4)",
        "context(cp=4) * ulysses(sp=2)",
        "pipeline(pp=4, microbatches=8, schedule='interleaved', chunks=2)",
    ],
)
def test_simulate_equals_one_device(run, subject):
    found, ran = json_of(run, "simulate", subject)
    assert ran.code == 0 and found["equal"], found["failure"]
    assert any("stands for" in note for note in found["notes"])


def test_simulate_notices_a_deviation(run):
    ran = run("simulate", "data(dp=8)", *DROP)
    assert ran.code == 1 and ran.out.startswith("DIFFERENT  data(dp=2) with the deviation")


def test_simulate_in_fractions(run):
    assert run("simulate", "data(dp=2)", "--field", "fraction", "--steps", "1").code == 0


def test_explain(run):
    found, ran = json_of(run, "explain", "zero3(dp=8)")
    assert ran.code == 0
    steps = [s for stage in found["stages"] for s in stage["steps"]]
    gathers = [s for s in steps if s["step"] == "all-gather"]
    assert gathers and all(s["axes"] == ["dp"] and s["bytes"] > 0 and s["why"] for s in gathers)
    assert "bytes" in run("explain", "zero3(dp=N)", "--json").out
    short, long = (run("explain", "zero3(dp=8)", *more).out for more in ((), ("--all",)))
    assert "release" not in short and "release" in long


def test_prove(run):
    found, ran = json_of(run, "prove", "--all", "--brief")
    assert ran.code == 0 and found["as_expected"]
    verdicts = {(c["theory"], c["got"]) for c in found["claims"]}
    assert verdicts >= {(t, v) for t in ("data", "zero", "tensor") for v in ("proved", "refuted")}
    assert "zero" in run("prove", "--list").out


def test_prove_fails_on_a_wrong_claim(run, tmp_path):
    path = tmp_path / "wrong.toml"
    path.write_text(
        '[[claim]]\nname = "no sync"\ncomposition = "data(dp=N)"\n'
        'without = ["drop all-reduce gradient dp"]\nverdict = "proved"\n'
    )
    ran = run("prove", str(path))
    assert ran.code == 1
    assert "refuted (expected proved)" in ran.out and "1 of 1 claim differ" in ran.out


# --- the program around the commands --------------------------------------------------


def process(*arguments, **options):
    command = [sys.executable, "-m", "placement_proofs", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60, **options)


def test_the_module_is_the_command():
    ran = process("check", "data(dp=2)")
    assert ran.returncode == 0 and ran.stdout.startswith("PROVED") and not ran.stderr


def test_no_colour_unless_on_a_terminal():
    assert "\x1b" not in process("check", "data(dp=2)").stdout


def test_colour_on_a_terminal(monkeypatch):
    from placement_proofs import check, data
    from placement_proofs.cli.output import paint
    from placement_proofs.render.report import report_text

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("placement_proofs.cli.output._on_terminal", lambda: True)
    assert report_text(check(data(dp=2)), paint()).startswith("\x1b[1;32mPROVED\x1b[0m")
    monkeypatch.setenv("NO_COLOR", "1")
    assert report_text(check(data(dp=2)), paint()).startswith("PROVED")


def test_a_closed_pipe_is_no_fault():
    code = (
        "import sys, subprocess; p = subprocess.Popen([sys.executable, '-m', 'placement_proofs', "
        "'explain', 'pipeline(pp=4, microbatches=8)', '--json'], stdout=subprocess.PIPE, "
        "stderr=subprocess.PIPE); p.stdout.close(); print(p.wait(), p.stderr.read())"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert ran.stdout == "141 b''\n"


def test_an_interruption_is_clean(run, monkeypatch):
    monkeypatch.setattr("placement_proofs.checking.check", interrupted)
    ran = run("check", "data(dp=2)")
    assert (ran.code, ran.out, ran.err) == (130, "", "interrupted\n")


def interrupted(*arguments, **options):
    raise KeyboardInterrupt


def broken(*arguments, **options):
    raise ZeroDivisionError("an axis of nobody")


def test_a_fault_of_ours_is_said_in_one_line_without_a_verdict(run, monkeypatch):
    monkeypatch.setattr("placement_proofs.checking.check", broken)
    ran = run("check", "data(dp=2)")
    assert (ran.code, ran.out) == (70, "")
    assert ran.err == (
        "fault of placement-proofs, not of your input: ZeroDivisionError: an axis of nobody; "
        "nothing was decided; please report it with the command line (--traceback shows where it "
        "happened)\n"
    )
    assert "Traceback" in run("check", "data(dp=2)", "--traceback").err


def test_a_spinner_only_for_what_takes_long(monkeypatch, capsys):
    import time

    from placement_proofs.cli import output

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with output.waiting("checking"):
        pass
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(output, "PATIENCE", 0.01)
    with output.waiting("checking"):
        time.sleep(0.2)
    assert "checking ..." in capsys.readouterr().err


def test_a_published_fault_is_a_subject_by_its_name(run):
    name = "titan-ep-2x"
    assert run("check", name).code == 1
    drawn = run("picture", name)
    assert (drawn.code, drawn.out.startswith("<svg")) == (0, True)
    assert run("check", f"{name}-no").code == 2


def test_values_given_are_those_that_formulas_are_read_with(run):
    shown = run("formula", "zero3(dp=N)", "--model", "abstract", "--set", "b=4", "--of", "memory")
    assert "b = 4" in shown.out and "b = 1" not in shown.out


def test_known_values_are_put_in(run):
    asked = ("formula", "zero3(dp=N) * tensor(tp=4)", "--model", "llama3-70b", "--known")
    out = run(*asked, "--of", "memory").out
    assert "  persistent = 282230652928/N\n" in out and "where" not in out


def test_every_command_is_described_whole_in_the_help(run):
    out = run("--help").out
    assert "..." not in out.partition("Commands:")[2]


def test_the_axis_to_shard_over_needs_no_tuple(run):
    alone = run("check", "zero2(dp=8, shard_over='dp')", "--model", "tiny")
    assert (alone.code, "zero2(dp=8, shard_over=('dp',))" in alone.out) == (0, True)


def test_a_report_says_the_deviation_and_a_missing_folder(run, tmp_path):
    change = "drop all-gather parameter dp"
    asked = ("report", "zero1(dp=2)", "--without", change, "--model", "tiny", "-o")
    assert f'with the deviation "{change}"' in run(*asked, str(tmp_path / "a.html")).out
    refused = run(*asked, str(tmp_path / "none" / "a.html"))
    assert (refused.code, "in a folder that exists" in refused.err) == (2, True)
