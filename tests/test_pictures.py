"""Pictures: well-formed, inside of their view box, with words beside them, true to their data."""

import itertools
import json
import math
from dataclasses import replace
from fractions import Fraction
from xml.etree import ElementTree

import pytest
from conftest import ROOT
from drawn import compositions
from hypothesis import given, settings

from placement_proofs import IllFormed, check, read_subject
from placement_proofs.cost import bubble, communication, live_at_peak, memory
from placement_proofs.cost.convention import DEFAULT
from placement_proofs.faults import all_faults
from placement_proofs.layout import sharded
from placement_proofs.render import pictures
from placement_proofs.render.hatch import COLLECTIVES, HATCHES, PHASES, STATES
from placement_proofs.render.pictures.counterexample import counterexample_data, draw_counterexample
from placement_proofs.render.pictures.drawn import drawn
from placement_proofs.render.pictures.mesh import draw_mesh
from placement_proofs.render.pictures.shards import mesh_data
from placement_proofs.render.svg import Sheet, fitted, printable, text_width, wrapped
from placement_proofs.schedule import in_flight
from placement_proofs.simulate import schedule

SVG = "{http://www.w3.org/2000/svg}"

SUBJECTS = (
    "single()",
    "data(dp=4)",
    "zero3(dp=2) * tensor(tp=2, sequence=True) * pipeline(pp=2, microbatches=4)",
    "data(dp=2) * expert(ep=4)",
    "fsdp(dp=N, reshard_after_forward=False) * accumulate(micro=M) * offload('parameters', "
    "'optimizer')",
    "hsdp(dp_replicate=4, dp_shard=64) * tensor(tp=8) * recompute('full')",
    "pipeline(pp=4, microbatches=8, schedule='interleaved', chunks=2) * ulysses(sp=2)",
    "examples/configs/megatron_moe.sbatch",
    "examples/two_machines.toml",
)
DRAW = {
    "mesh": pictures.picture_mesh,
    "plan": pictures.picture_plan,
    "memory": pictures.picture_memory,
    "traffic": pictures.picture_traffic,
}


@pytest.fixture(autouse=True)
def at_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def assert_sound(picture):
    """Well-formed, described, the same every time, every text inside and none on another."""
    tree = ElementTree.fromstring(picture.svg)
    assert tree.get("role") == "img"
    assert tree.find(f"{SVG}title").text and tree.find(f"{SVG}desc").text
    assert printable(picture.title) in tree.get("aria-label") and len(picture.alternative) > 20
    wide, high = map(float, tree.get("viewBox").split()[2:])
    assert 0 < wide < 1_400 and 0 < high < 4_000
    background = tree.findall(f"{SVG}rect")[0]
    assert (background.get("fill"), float(background.get("width"))) == ("#ffffff", wide)
    boxes = [box for text in tree.iter(f"{SVG}text") if (box := _box(text))]
    for left, top, right, bottom, said in boxes:
        assert left >= 0 and top >= 0 and right <= wide and bottom <= high, said
    _assert_apart(boxes)
    assert " id=" not in picture.svg and "url(" not in picture.svg
    json.dumps(dict(picture.data))


def _box(text):
    """Where a text stands; turned ones are skipped."""
    if text.get("transform"):
        return None
    label = text.find(f"{SVG}tspan")
    said = "".join(t for t in text.itertext() if t)
    tip = text.find(f"{SVG}title")
    said = said.removeprefix(tip.text) if tip is not None else said
    size = float(text.get("font-size", 12))
    bold = text.get("font-weight") == "bold"
    wide = text_width(said, size, bold=bold or label is not None) * 0.8
    x, y = float(text.get("x")), float(text.get("y"))
    left = {"middle": x - wide / 2, "end": x - wide}.get(text.get("text-anchor"), x)
    return left, y - size * 0.75, left + wide, y + size * 0.2, said


def _assert_apart(boxes):
    for i, (left, top, right, bottom, said) in enumerate(boxes):
        for l2, t2, r2, b2, other in boxes[i + 1 :]:
            apart = right <= l2 or r2 <= left or bottom <= t2 or b2 <= top
            assert apart, f"{said!r} on {other!r}"


# --- every picture -------------------------------------------------------------------


@pytest.mark.parametrize("kind", DRAW)
@pytest.mark.parametrize("text", SUBJECTS)
def test_pictures_are_sound(text, kind):
    assert_sound(DRAW[kind](text))


@pytest.mark.parametrize("kind", DRAW)
def test_pictures_are_the_same_every_time(kind):
    first, second = (DRAW[kind](SUBJECTS[2]) for _ in range(2))
    assert first.svg == second.svg == first._repr_svg_()


@given(composition=compositions())
@settings(max_examples=15)
def test_random_compositions_can_be_drawn(composition):
    for draw in DRAW.values():
        assert_sound(draw(composition))


@pytest.mark.parametrize("stage", ["first", "middle", "last"])
def test_every_stage_can_be_drawn(stage):
    picture = pictures.picture_plan(SUBJECTS[2], stage=stage)
    assert_sound(picture)
    assert picture.data["stage"] == stage


FAULTS = [f for i, f in enumerate(all_faults()) if i % 6 == 0 or "shared-buffer" in f.name]


@pytest.mark.parametrize("path", FAULTS, ids=lambda p: p.stem)
def test_published_faults_can_be_drawn(path):
    report = check(str(path))
    if report.failure is None:
        with pytest.raises(IllFormed, match="refutation"):
            pictures.picture_counterexample(report)
        return
    assert_sound(pictures.picture_counterexample(report))
    found = report.failure.counterexample
    last = found["moments"][-1]["ranks"] if found["moments"] else []
    if any(row["holds"] for row in last) and found["condition"] != "optimizer_class":
        (row,) = (row for row in last if row["rank"] == found["rank"])
        assert found["got"] in {cell["value"] for cell in row["holds"]} | {"nothing"}


@pytest.mark.parametrize(
    "text",
    [
        "pipeline(pp=4, microbatches=8)",
        "pipeline(pp=4, microbatches=4, schedule='gpipe')",
        "pipeline(pp=2, microbatches=M)",
        "pipeline(pp=4, microbatches=6, schedule='interleaved', chunks=2)",
        "pipeline(pp=32, microbatches=256)",
    ],
)
def test_schedules_are_sound(text):
    assert_sound(pictures.picture_schedule(text))


def test_long_and_hostile_names_stay_inside():
    axis = "a" * 60
    assert_sound(
        pictures.picture_mesh(
            f"place({axis}=4, parameters='S*', optimizer='S', gradients='S', batch='S(0)')"
        )
    )
    sheet = Sheet("<script>alert(1)</script> & \x00 \"'")
    sheet.text(10, 20, "<b>&\x07", room=400)
    sheet.rect(0, 0, 5, 5, tip="</title><script>")
    picture = sheet.finished("<i>&amp;</i> of nothing in particular", {})
    assert "<script" not in picture.svg and "\x00" not in picture.svg
    assert_sound(picture)


def test_the_checks_of_pictures_can_fail():
    for x, y, said in ((20, 30, "on another text"), (-5, 60, "outside"), (20, 80, "over the edge")):
        sheet = Sheet("A title")
        sheet.text(10, 32, "the first text")
        sheet.rect(0, 0, 200, 100)
        sheet.text(x, y, said)
        picture = sheet.finished("Two texts of which one is wrong.", {})
        narrow = replace(picture, width=60.0) if said == "over the edge" else picture
        with pytest.raises(AssertionError):
            assert_sound(narrow)


# --- text ----------------------------------------------------------------------------


def test_texts_are_shortened_to_their_room():
    name = "model.decoder.layers.self_attention.linear_qkv.weight"
    short = fitted(name, 120)
    assert text_width(short) <= 120 and "…" in short
    assert short.startswith("mo") and short.endswith("t")
    assert all(text_width(line) <= 100 for line in wrapped(f"a {name} b", 100))
    assert fitted("W", 0) == "…"


@pytest.mark.parametrize("name", HATCHES)
@pytest.mark.parametrize(("wide", "high"), [(56, 26), (400, 22), (5, 5), (2.5, 20), (56, 3)])
def test_strokes_stay_in_their_rectangle(name, wide, high):
    lines = list(HATCHES[name].strokes(wide, high))
    assert lines
    for x1, y1, x2, y2 in lines:
        assert 0 <= x1 <= wide and 0 <= x2 <= wide and 0 <= y1 <= high and 0 <= y2 <= high


def test_hatchings_differ_without_their_colours():
    drawn_ = [(*h.strokes(40, 20), h.thick) for h in HATCHES.values()]
    assert len(set(drawn_)) == len(drawn_)


def test_everything_has_a_hatching():
    from placement_proofs.cost.lifetimes import Kept
    from placement_proofs.layout import Collective
    from placement_proofs.plan import Phase

    assert {k.value for k in Kept} <= set(STATES)
    assert {c.value for c in Collective} == set(COLLECTIVES)
    assert {p.value for p in Phase} == set(PHASES)


# --- the mesh ------------------------------------------------------------------------


def held(data, rank, state):
    return next(p for p in data["ranks"][rank]["parts"] if p["state"] == state)["slice"]


def test_mesh_shows_modes_and_slices():
    data = mesh_data(drawn("zero3(dp=2) * tensor(tp=2)"), ["layers.q.weight"])
    matrices, norms, _ = data["table"]
    assert matrices["states"]["parameters"] == {"dp": "S*", "tp": "S"}
    assert norms["states"]["parameters"] == {"dp": "S*", "tp": "R"}
    assert [held(data, r, "parameters")[0] for r in range(4)] == [
        [0, 1024],
        [2048, 3072],
        [1024, 2048],
        [3072, 4096],
    ]
    assert held(data, 3, "gathered parameters") == [[2048, 4096], [0, 4096]]


@given(composition=compositions())
@settings(max_examples=15)
def test_parts_of_a_state_cover_its_tensor(composition):
    """Every element is on some rank, as often as the modes say."""
    subject = drawn(composition)
    data = mesh_data(subject)
    if data["world"] > len(data["ranks"]):
        return
    for tensor in data["tensors"]:
        whole = math.prod(tensor["shape"])
        for state in ("parameters", "gradients", "optimizer"):
            parts = [
                p["slice"]
                for r in data["ranks"]
                for p in r["parts"]
                if (p["of"], p["state"]) == (tensor["name"], state)
            ]
            total = sum(math.prod(high - low for low, high in part) for part in parts)
            assert total % whole == 0 and total >= whole


def test_a_swapped_owner_changes_the_picture():
    """Mutants of the plan: another owner of a shard, another dim, no shard."""
    subject = drawn("zero3(dp=2)")
    right = draw_mesh(mesh_data(subject))
    seen = {right.svg}
    for entry in (
        replace(first_shard(subject), on=replace(sharded(0), owner=1)),
        replace(first_shard(subject), on=sharded(1)),
        None,
    ):
        plan, model = subject.made
        wrong = mutated(plan, entry)
        mutant = drawn("zero3(dp=2)")
        mutant.__dict__["made"] = (wrong, model)
        picture = draw_mesh(mesh_data(mutant))
        assert picture.data != right.data
        seen.add(picture.svg)
    assert len(seen) == 4


def first_shard(subject):
    return subject.plan.stages[0].tensors[0].stored[0]


def mutated(plan, entry):
    layout = () if entry is None else (entry,)
    stages = tuple(
        replace(s, tensors=tuple(replace(t, stored=layout) for t in s.tensors)) for s in plan.stages
    )
    return replace(plan, stages=stages)


def test_more_than_sixteen_ranks_are_counted():
    data = mesh_data(drawn("zero3(dp=64)"))
    assert (len(data["ranks"]), data["world"]) == (8, 64)
    assert "… and 56 more ranks" in draw_mesh(data).svg


def test_unknown_names_are_refused():
    with pytest.raises(IllFormed, match="the tensors are"):
        pictures.picture_mesh("data(dp=2)", tensors=["nonsense"])
    with pytest.raises(IllFormed, match="the stages are"):
        pictures.picture_plan("data(dp=2)", stage="nonsense")


# --- bills ---------------------------------------------------------------------------


@given(composition=compositions())
@settings(max_examples=25)
def test_what_is_live_at_the_peak_adds_up_to_it(composition):
    subject = drawn(composition)
    bill = memory(subject.plan, subject.sizes, DEFAULT)
    live = live_at_peak(subject.plan, subject.sizes, DEFAULT, bill.position)
    assert bill.persistent + sum(live.values()) == bill.peak
    assert all(live[kind] <= most for kind, most in bill.transient.items())


def test_operations_of_two_passes_are_not_drawn_as_one():
    """The loss is the last operation forward and the first backward."""
    steps = pictures.picture_plan(read_subject("zero3(dp=4)", model="abstract")).data["steps"]
    runs = [(step["section"], step["what"]) for step in steps if step["step"] == "run"]
    assert runs == [("forward", "opaque, loss"), ("backward", "loss"), ("backward", "opaque")]


def test_bars_are_the_bytes_of_the_bill():
    picture = pictures.picture_traffic(SUBJECTS[2])
    subject = drawn(SUBJECTS[2])
    bill = communication(subject.plan, subject.sizes, DEFAULT)
    assert sum(bar["bytes"] for bar in picture.data["bars"]) == bill.total
    for bar in picture.data["bars"]:
        assert sum(bar["phases"].values()) == bar["bytes"]


@pytest.mark.parametrize(
    ("text", "deviations"),
    [
        (SUBJECTS[2], ()),
        ("examples/configs/megatron_moe.sbatch", ()),
        ("zero3(dp=2)", ("drop all-reduce statistic dp",)),
        ("data(dp=8)", ("drop all-reduce gradient dp",)),
    ],
)
def test_bills_are_those_of_check(text, deviations):
    """With a file's convention, and with a deviation of the norm that is not costed."""
    subject = read_subject(text, without=deviations)
    report = check(subject)
    assert pictures.picture_memory(subject).data["memory"]["peak"] == report.memory["peak"]
    assert pictures.picture_traffic(subject).data["total"] == report.communication["total"]
    assert_sound(pictures.picture_plan(subject))


def test_flat_storage_is_said():
    subject = read_subject("fsdp(dp=4)", profile="torch-fsdp1")
    assert "one flat tensor of its unit" in " ".join(pictures.picture_mesh(subject).data["notes"])


# --- schedules -----------------------------------------------------------------------


@pytest.mark.parametrize("pp", [2, 4, 8])
@pytest.mark.parametrize("micro", [8, 16])
@pytest.mark.parametrize("kind", ["gpipe", "1f1b", "interleaved", "zb-h1"])
def test_the_timetable_idles_and_keeps_as_the_formulas_say(pp, micro, kind):
    chunks = 2 if kind == "interleaved" else 1
    subject = drawn(f"pipeline(pp={pp}, microbatches={micro}, schedule='{kind}', chunks={chunks})")
    plan, sizes = subject.plan, subject.sizes
    rows = schedule.timetable(plan, sizes)
    work = sum(slot.length for slot in rows[0])
    assert Fraction(max(r[-1].stop for r in rows) - work, work) == bubble(plan, sizes)
    for number, row in enumerate(rows):
        name = "last" if number == pp - 1 else "first" if number == 0 else "middle"
        index = None if number == pp - 1 else number
        position = replace(
            next(p for p in plan.positions if p.name == name or pp == 2), index=index
        )
        assert schedule.most_in_flight(row) == in_flight(plan, position, sizes)
        assert len({s.run for s in row}) == len(row)
        assert all(a.stop <= b.start for a, b in itertools.pairwise(row))


def test_gradients_of_weights_are_drawn_and_named():
    picture = pictures.picture_schedule("pipeline(pp=2, microbatches=4, schedule='zb-h1')")
    assert "= (p-1)/(3m) with p=2, m=4" in picture.svg
    assert "gradients of weights of micro-batch 3, stage 1" in picture.svg
    picture = pictures.picture_schedule("pipeline(pp=2, microbatches=4, schedule='zb-h2')")
    assert "none where no position waits for the others" in picture.svg


def test_a_pass_waits_for_its_input():
    subject = drawn("pipeline(pp=3, microbatches=4) * data(dp=2)".replace("pp=3", "pp=4"))
    rows = schedule.timetable(subject.plan, subject.sizes)
    ends = {s.run: s.stop for row in rows for s in row}
    for row in rows:
        for slot in row:
            run = slot.run
            ahead = replace(run, stage=run.stage + (1 if run.backward else -1))
            assert slot.start >= ends.get(ahead, 0)


# --- counterexamples -----------------------------------------------------------------


def test_the_moments_around_the_blamed_step():
    report = check("examples/programs/micro_batch_overwrite.toml")
    before, after, _ = report.failure.counterexample["moments"]
    assert (before["when"], before["step"], before["turns"]) == (
        "before",
        "1.2.1",
        {"step": 0, "mb": 1},
    )
    assert values(before) == [["3/2"]] and values(after) == [["5/2"]]
    svg = pictures.picture_counterexample(report).svg
    for said in ("g = 3/2", "g = 5/2", "expected 4", "got 5/2: wrong", "c[dp=0, mb=1] = 5"):
        assert said in svg


def values(moment):
    return [[cell["value"] for cell in rank["holds"]] for rank in moment["ranks"]]


@pytest.mark.parametrize(
    ("text", "deviation"),
    [
        ("data(dp=4)", "drop all-reduce gradient dp"),
        ("tensor(tp=2)", "drop all-reduce activation tp"),
    ],
)
def test_a_deviation_is_blamed_for_itself(text, deviation):
    report = check(read_subject(text, without=[deviation]))
    picture = draw_counterexample(counterexample_data(report))
    assert f"The deviation is to blame: {deviation}." in picture.alternative
    assert "A step is missing" not in picture.svg
    assert_sound(picture)


# --- the command ---------------------------------------------------------------------


def test_picture_writes_files_and_says_so(run, tmp_path):
    path = tmp_path / "mesh.svg"
    ran = run("picture", "zero3(dp=4)", "-o", str(path))
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == f"{path}: Who holds what: zero3(dp=4) on model dense\n"
    assert path.read_text() == pictures.picture_mesh("zero3(dp=4)").svg


def test_picture_prints_svg_or_data(run):
    assert run("picture", "data(dp=2)", "--what", "memory").out.startswith("<svg ")
    data = json.loads(run("picture", "data(dp=2)", "--what", "traffic", "--json").out)
    assert (data["picture"], data["bars"][0]["collective"]) == ("traffic", "all-reduce")


def test_of_a_program_the_counterexample_is_drawn(run):
    ran = run("picture", "examples/programs/micro_batch_overwrite.toml")
    assert ran.code == 0 and "got 5/2: wrong" in ran.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("data(dp=2)", "--what", "schedule"), "no pipeline of two or more stages"),
        (("data(dp=2)", "--what", "counterexample"), "the verdict proved"),
        (("data(dp=2)", "--what", "mesh", "--stage", "x"), "it is an option of plan"),
        (("data(dp=2)", "-o", "no/such/folder.svg"), "the output file must be writable"),
        (("examples/programs/loop.toml", "--what", "mesh"), "an element program"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_one_line(run, arguments, said):
    ran = run("picture", *arguments)
    assert ran.code == 2 and said in ran.err and ran.err.count("\n") == 1
