"""The texts of the experiments belong to what is measured, drawn and judged."""

import tomllib
from pathlib import Path

import pytest

import vrtd.paper
from vrtd.paper import experiments
from vrtd.paper.experiment import read_texts

TEXTS = Path(vrtd.paper.__file__).parent / "texts"


def read(name):
    return tomllib.loads((TEXTS / f"{name}.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", experiments.NAMES)
def test_every_text_is_used(name):
    texts, found = read(name), experiments.find(name)
    assert found.name == name
    assert list(texts["figures"]) == [figure.name for figure in found.figures]
    names = [claim.name for claim in found.claims]
    own = list(texts.get("claims", {}))
    assert names[len(names) - len(own) :] == own
    shared = names[: len(names) - len(own)]
    assert [claim.split("-", 2)[2] for claim in shared] in ([], list(read("batch-sizes")["claims"]))


def test_texts_hold_the_numbers_that_decide():
    claims = {claim.name: claim for claim in experiments.all_claims()}
    assert "above 0.85, on two chains. The criterion is ours: a slope within 0.15" in claims["td-variance-alpha"].test
    assert "more than 0.2 of the run is much slower; 0.1 is" in claims["figure-3-not-much-slower"].test
    assert not any("$" in text for claim in claims.values() for text in (claim.statement, claim.test, claim.note))


def test_a_text_with_an_unknown_name_is_refused():
    with pytest.raises(KeyError, match="paper_batch"):
        read_texts("mountain-car")
