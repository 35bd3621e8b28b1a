"""Every source of the registry can be asked how it would be measured, model or not."""

import pytest

from specbook import drafts
from specbook.drafts.neural import draft_model, heads
from specbook.errors import SpecbookError
from specbook.measure.acceptance import calibration_shape
from specbook.measure.calibrated import calibrated
from specbook.proposal import SamplingRelation

SHAPE = calibration_shape(3, 2)
COPIES = ("prompt_lookup", "suffix")
CHAINS = [n for n in drafts.names() if not getattr(drafts.get(n), "follows_plans", 1)]


@pytest.mark.parametrize("name", CHAINS)
def test_a_source_that_follows_no_plan_has_no_slots(name):
    with pytest.raises(SpecbookError, match=f"{name!r} drafts one chain"):
        calibrated(name, SHAPE)


@pytest.mark.parametrize("name", sorted({*drafts.names()} - {"rest", *CHAINS}))
def test_no_model_is_loaded_to_tell_the_contract(name, monkeypatch):
    def loads(*arguments, **options):
        raise AssertionError("something was loaded")

    monkeypatch.setattr(draft_model.DraftModel, "__init__", loads)
    monkeypatch.setattr(heads.HeadsSource, "__init__", loads)
    found = calibrated(name, SHAPE)
    assert found.contract.name == name
    if name in COPIES:
        assert found.most is None and found.make().contract == found.contract
        return
    assert found.most == len(SHAPE)
    relation = SamplingRelation.WITHOUT_REPLACEMENT
    assert found.contract.sampling_relation is relation
    with pytest.raises(AssertionError, match="something was loaded"):
        found.make()
    ranked = calibrated(name, SHAPE, children="top_k").contract
    assert ranked.sampling_relation is SamplingRelation.BEAM


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"name": "suffix", "children": "iid"}, "draws no children"),
        ({"name": "hydra", "draft": "x"}, "a draft belongs to"),
        ({"name": "rest"}, "needs a datastore"),
        ({"name": "suffix", "datastore": "x"}, "no other source"),
        ({"name": "oracle"}, "no draft source is called"),
        ({"name": "draft_model", "children": "adopted"}, "children"),
    ],
)
def test_what_does_not_fit_is_told(options, told):
    with pytest.raises(SpecbookError, match=told):
        calibrated(shape=SHAPE, **options)
