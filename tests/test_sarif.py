"""SARIF, the summary of several files, and the hook: what a CI job sees."""

import json
import re
from pathlib import Path

import pytest
import yaml
from conftest import ROOT

from placement_proofs.errors import IllFormed
from placement_proofs.render.sarif import LEVELS, sarif
from placement_proofs.verdict import Verdict

NEVER_SYNCHRONISED = (
    "distributed_type: FSDP\nnum_machines: 4\nnum_processes: 4\n"
    "fsdp_config:\n  fsdp_sharding_strategy: HYBRID_SHARD\n"
)
IGNORED = """{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {
    "stage": 2,
    "offload_param": {"device": "cpu"}
  }
}
"""
REJECTED = """{
  "train_batch_size": 7,
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 1,
  "zero_optimization": {"stage": 2}
}
"""
ABSENT = (
    "distributed_type: DEEPSPEED\nnum_processes: 8\n"
    "deepspeed_config:\n  deepspeed_config_file: absent.json\n"
)
FILES = {
    "accelerate.yaml": NEVER_SYNCHRONISED,
    "ignored.json": IGNORED,
    "rejected.json": REJECTED,
    "absent.yaml": ABSENT,
    "stage.json": '{\n "zero_optimization": {"stage": 7}\n}\n',
    "cut.json": '{\n "zero_optimization": {"stage": 2},\n',
}


@pytest.fixture
def checked(run, tmp_path, monkeypatch):
    """Checks files in a folder of their own; returns the log and what was printed."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)

    def check(*arguments):
        out = tmp_path / "out.sarif"
        monkeypatch.chdir(tmp_path)
        ran = run("check", *arguments, "--sarif", str(out))
        return json.loads(out.read_text()), ran

    return check


def results(log):
    return log["runs"][0]["results"]


def of(log, rule):
    return [r for r in results(log) if r["ruleId"] == rule]


def line(result):
    return result["locations"][0]["physicalLocation"]["region"]["startLine"]


def validate(log):
    """The parts of the SARIF 2.1.0 schema that a log of ours has: required keys, types, ranges."""
    assert log["version"] == "2.1.0" and log["$schema"].endswith("sarif-2.1.0.json")
    assert set(log) <= {"$schema", "version", "runs"} and len(log["runs"]) == 1
    (one,) = log["runs"]
    assert set(one) <= {"tool", "invocations", "columnKind", "results"}
    assert one["columnKind"] in ("utf16CodeUnits", "unicodeCodePoints")
    for invocation in one["invocations"]:
        assert invocation["executionSuccessful"] is True
    driver = one["tool"]["driver"]
    assert driver["name"] == "placement-proofs" and isinstance(driver["version"], str)
    rules = driver["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules), "ids are unique"
    for rule in rules:
        validate_rule(rule)
    for result in one["results"]:
        validate_result(result, rules)


def validate_rule(rule):
    assert set(rule) == {
        *("id", "name", "shortDescription", "fullDescription", "help", "defaultConfiguration")
    }
    assert re.fullmatch(r"[a-z0-9/-]+", rule["id"])
    for key in ("shortDescription", "fullDescription", "help"):
        assert isinstance(rule[key]["text"], str) and rule[key]["text"]
    assert rule["defaultConfiguration"]["level"] in ("none", "note", "warning", "error")


def validate_result(result, rules):
    assert set(result) <= {
        *("ruleId", "ruleIndex", "level", "message", "locations", "partialFingerprints")
    }
    assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
    assert result["level"] in ("none", "note", "warning", "error")
    assert isinstance(result["message"]["text"], str) and result["message"]["text"]
    assert all(isinstance(v, str) for v in result["partialFingerprints"].values())
    assert len(result["locations"]) == 1
    for location in result["locations"]:
        assert location and set(location) <= {"physicalLocation", "logicalLocations"}
        physical = location.get("physicalLocation")
        if physical:
            assert set(physical) <= {"artifactLocation", "region"}
            uri = physical["artifactLocation"]["uri"]
            assert re.fullmatch(r"[A-Za-z0-9._~:/%+-]+", uri), "a URI reference"
            start = physical.get("region", {"startLine": 1})["startLine"]
            assert isinstance(start, int) and start >= 1
        for logical in location.get("logicalLocations", ()):
            assert isinstance(logical["fullyQualifiedName"], str)


def test_every_kind_of_answer_is_valid_sarif(checked):
    log, ran = checked(*FILES, "zero3(dp=8)", "zero9(dp=8)")
    validate(log)
    assert ran.code == 2
    text = json.dumps(log)
    assert str(ROOT) not in text and "tmp" not in text, "paths are relative"


def test_the_validation_can_fail(checked):
    log, _ = checked("accelerate.yaml")
    for broken in ({"level": "fatal"}, {"ruleIndex": -9}, {"message": {}}):
        result = {**results(log)[0], **broken}
        with pytest.raises((AssertionError, KeyError, IndexError)):
            validate({**log, "runs": [{**log["runs"][0], "results": [result]}]})


def test_wrong_mathematics_and_the_refutation_stand_at_the_line(checked):
    log, ran = checked("accelerate.yaml")
    assert ran.code == 1
    (finding,) = of(log, "accelerate/hybrid-shard-of-one-rank")
    (verdict,) = of(log, "refuted/gradient-integrity")
    for result in (finding, verdict):
        assert result["level"] == "error" and line(result) == 2
    assert "embedding" in verdict["message"]["text"] and "not 6" in verdict["message"]["text"]
    (logical,) = finding["locations"][0]["logicalLocations"]
    assert logical["fullyQualifiedName"] == "num_machines"


def test_levels_follow_the_kind_and_help_names_the_source(checked):
    log, _ = checked("ignored.json", "rejected.json", "--world", "8")
    (ignored,) = of(log, "deepspeed/offload-param-needs-stage-3")
    (rejected,) = of(log, "deepspeed/batch-triple")
    assert (ignored["level"], line(ignored)) == ("warning", 5)
    assert (rejected["level"], line(rejected)) == ("error", 2)
    rules = {rule["id"]: rule for rule in log["runs"][0]["tool"]["driver"]["rules"]}
    assert "runtime/config.py" in rules["deepspeed/batch-triple"]["help"]["text"]
    assert set(LEVELS) == {"mathematics", "rejected", "ignored", "unlikely"}


def test_unknown_is_a_warning(checked):
    log, ran = checked("absent.yaml")
    assert ran.code == 3
    unknown = [r for r in results(log) if r["ruleId"].startswith("unknown/")]
    assert unknown and {r["level"] for r in unknown} == {"warning"}
    assert "zero_stage" in unknown[0]["message"]["text"]


@pytest.mark.parametrize(("name", "number"), [("stage.json", 2), ("cut.json", 3)])
def test_ill_formed_input_is_an_error_at_its_line(checked, name, number):
    log, ran = checked(name)
    assert ran.code == 2
    (result,) = results(log)
    assert result["ruleId"] == "ill-formed" and result["level"] == "error"
    assert abs(line(result) - number) <= 1


def test_a_proof_without_findings_has_no_results(checked):
    log, ran = checked("zero3(dp=8) * tensor(tp=4)")
    assert ran.code == 0 and results(log) == []
    validate(log)


def test_an_expression_has_a_name_and_no_file():
    error = IllFormed("expression", "zero9(dp=8)", "the strategies are ...", "did you mean zero3?")
    log = sarif([("zero9(dp=8)", error)], "1")
    validate(log)
    assert list(results(log)[0]["locations"][0]) == ["logicalLocations"]


def test_a_finding_in_an_included_file_stands_there(checked, tmp_path):
    (tmp_path / "ds.json").write_text(IGNORED)
    (tmp_path / "launch.yaml").write_text(
        "distributed_type: DEEPSPEED\nnum_processes: 8\n"
        "deepspeed_config:\n  deepspeed_config_file: ds.json\n"
    )
    log, _ = checked("launch.yaml")
    (result,) = of(log, "accelerate/offload-param-needs-stage-3")
    physical = result["locations"][0]["physicalLocation"]
    assert physical["artifactLocation"]["uri"] == "ds.json" and line(result) == 5


def test_a_fingerprint_survives_a_moved_line(checked, tmp_path):
    first, _ = checked("ignored.json")
    (tmp_path / "ignored.json").write_text("\n\n" + IGNORED)
    second, _ = checked("ignored.json")
    rule = "deepspeed/offload-param-needs-stage-3"
    assert line(of(first, rule)[0]) + 2 == line(of(second, rule)[0])
    assert of(first, rule)[0]["partialFingerprints"] == of(second, rule)[0]["partialFingerprints"]


def test_several_files_have_a_line_each_and_the_worst_code(checked):
    _, ran = checked("ignored.json", "accelerate.yaml", "absent.yaml")
    *_, title, one, two, three, counts = ran.out.splitlines()
    assert title == "summary, exit code 1" and ran.code == 1
    assert one.split(None, 2) == ["proved", "ignored.json", "the framework ignores 1 setting"]
    assert two.split() == ["refuted", "accelerate.yaml"]
    assert three.split()[:2] == ["unknown", "absent.yaml"]
    assert counts == "3 subjects: 1 proved, 1 refuted, 1 unknown"


def test_json_of_several_names_them(run):
    ran = run("check", "zero3(dp=8)", "zero9(dp=8)", "--json")
    found = json.loads(ran.out)
    assert found["subjects"] == ["zero3(dp=8)", "zero9(dp=8)"]
    assert [r["verdict"] for r in found["reports"]] == ["proved", "ill-formed"]


def test_a_log_that_cannot_be_written_is_said(run, tmp_path):
    ran = run("check", "zero3(dp=8)", "--sarif", str(tmp_path / "none" / "out.sarif"))
    assert ran.code == 2 and ran.err.startswith("error: ") and "Traceback" not in ran.err


HOOK = ROOT / ".pre-commit-hooks.yaml"
GUIDE = ROOT / "docs" / "how-to" / "check-in-ci.md"


def test_the_hook_takes_files_of_frameworks():
    (hook,) = yaml.safe_load(HOOK.read_text())
    assert hook["id"] == "placement-proofs-check" and hook["language"] == "python"
    assert hook["entry"] == "placement-proofs check"
    assert set(hook["types_or"]) == {"json", "yaml", "toml", "shell"}
    taken = re.compile(hook["files"])
    yes = ("ds_config.json", "a/zero3.json", "fsdp2.yaml", "x/pretrain_Megatron.sh", "nemo.yml")
    assert all(taken.search(name) for name in yes)
    no = ("package.json", ".github/workflows/ci.yaml", "fsdp/readme.md", "pyproject.toml")
    assert not any(taken.search(name) for name in no)
    examples = [p for p in (ROOT / "examples" / "configs").iterdir() if p.suffix != ".py"]
    assert all(taken.search(path.name) for path in examples)


def test_the_guide_is_right():
    text = GUIDE.read_text()
    blocks = [yaml.safe_load(b) for b in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]
    workflow, hooks = blocks
    steps = workflow["jobs"]["check"]["steps"]
    command = next(s["run"] for s in steps if "--sarif" in s.get("run", ""))
    uploaded = next(s["with"]["sarif_file"] for s in steps if "upload-sarif" in s.get("uses", ""))
    assert command.endswith(uploaded)
    ids = [hook["id"] for hook in yaml.safe_load(HOOK.read_text())]
    assert [hook["id"] for repo in hooks["repos"] for hook in repo["hooks"]] == ids
    for verdict in (Verdict.PROVED, Verdict.REFUTED, Verdict.ILL_FORMED, Verdict.UNKNOWN):
        assert f"| {verdict.exit_code} | {verdict.value} |" in text


def test_a_path_with_spaces_is_a_uri():
    log = sarif([("my configs/a b.json", IllFormed("a b.json:3 x", "y", "z", "w"))], "1")
    validate(log)
    physical = results(log)[0]["locations"][0]["physicalLocation"]
    assert physical["artifactLocation"]["uri"] == "my%20configs/a%20b.json"
    assert physical["region"]["startLine"] == 3


def test_a_file_outside_the_folder_is_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outside = Path(tmp_path.anchor) / "elsewhere" / "a.json"
    log = sarif([(str(outside), IllFormed("a.json", "x", "y", "z"))], "1")
    uri = results(log)[0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == outside.as_uri()
