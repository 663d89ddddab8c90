"""Models by name and from files."""

import pytest

from placement_proofs.errors import IllFormed
from placement_proofs.models import Shape, transformer
from placement_proofs.zoo import DENSE, elements, load_model, named


def test_the_dense_default_has_eight_billion_parameters():
    assert elements(named("dense")) == 8_030_261_248


def test_a_folded_model_has_the_parameters_of_the_unfolded_one():
    shape = Shape(layers=5, tied=True, experts=2, bias=True, gated=False)
    assert elements(transformer(shape)) == elements(transformer(shape, folded=True))


def test_a_file_builds_on_a_named_shape(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('[model]\nbase = "dense"\nlayers = 16\ntied = true\n')
    model = load_model(str(path))
    assert (model.name, model.dims["L"], model.dims["h"]) == ("mine", 16, DENSE.hidden)


def test_a_number_of_parameters_is_the_abstract_model(tmp_path):
    path = tmp_path / "psi.toml"
    path.write_text("parameters = 7.5e9\n")
    assert load_model(str(path)).dims["Psi"] == 7_500_000_000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("layer = 3", "a shape has layers"),
        ("layers = 0", "all are at least 1"),
        ("layers = true", "a whole number"),
        ("tied = 1", "true or false"),
        ("hidden = 10\nheads = 4", "divide the hidden size"),
        ("parameters = -1", "positive number"),
        ("parameters = 5\nlayers = 2", "no shape"),
        ("layers = ", "TOML"),
    ],
)
def test_a_wrong_file_says_where(tmp_path, text, words):
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(IllFormed) as caught:
        load_model(str(path))
    assert words in str(caught.value)
    assert "wrong.toml" in str(caught.value)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(IllFormed, match="dense, moe, tiny, abstract, perceptron"):
        load_model("gpt-5")
