"""A definition: what is wrong with one is said by the name of its key."""

import json
from datetime import UTC, datetime

import pytest

from streammetrics.errors import InvalidInputError
from streammetrics.serve.evaluation.experiment import Experiment, describe_changes, has_share_change

TEXT = """
title = "New ranking"
control = "old"
arm = "variant"
unit = "user_id"
primary = "ctr"
secondary = ["revenue"]
model = ["auc"]
slices = ["country", "device"]
start = 2026-06-01T00:00:00Z
end = "2026-06-15T00"
users = 200_000
counts = "users"
phase = "phase"
min_days = 7
mature_after = 24
retention_days = 90
public = true
webhooks = ["https://hooks.example/alerts"]

[arms]
old = 50
new = 25
newer = 25

[guardrails]
latency = 0.02

[better]
latency = "low"

[sources]
web-1 = 1.5
"""


def given(**other):
    one = {"id": "e", "arms": {"old": 1, "new": 1}, "control": "old", "primary": "ctr", "start": "2026-06-01T00"}
    return one | other


def test_a_file_says_everything():
    one = Experiment.from_toml(TEXT, id="ranking")
    assert one.id == "ranking"
    assert one.arms == {"old": 0.5, "new": 0.25, "newer": 0.25}
    assert one.treatments == ["new", "newer"]
    assert one.metrics == {"ctr": "primary", "latency": "guardrail", "revenue": "secondary", "auc": "model"}
    assert one.start * 3600 == datetime(2026, 6, 1, tzinfo=UTC).timestamp()
    assert one.end == one.start + 14 * 24
    assert one.sources == {"web-1": 1.5}
    assert (one.users, one.mature_after, one.retention_days, one.public) == (200_000.0, 24.0, 90.0, True)


def test_through_json_and_back():
    one = Experiment.from_toml(TEXT, id="ranking")
    text = json.dumps(one.to_dict(), allow_nan=False)
    assert Experiment.from_dict(json.loads(text)) == one
    thirds = Experiment.from_dict(given(arms={"old": 1, "new": 1, "newer": 1}))
    assert Experiment.from_dict(thirds.to_dict()) == thirds


def test_the_file_may_name_it_and_dates_are_midnights():
    one = Experiment.from_toml(
        'id = "own"\ncontrol = "a"\nprimary = "ctr"\nstart = 2026-06-01\narms = {a = 1, b = 1}', id="of-the-file"
    )
    assert (one.id, one.title, one.start) == ("own", "own", Experiment.from_dict(given()).start)


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ({"id": "../up"}, "id"),
        ({"id": 3}, "id"),
        ({"arms": {"old": 1}}, "arms"),
        ({"arms": {"old": 1, "new": 0}}, "arms"),
        ({"arms": {"old": 1, "new": float("nan")}}, "arms.new"),
        ({"arms": {"old": 1, "new": -1}}, "arms.new"),
        ({"arms": {"old": 1, "new": True}}, "arms.new"),
        ({"arms": ["old", "new"]}, "arms"),
        ({"control": "other"}, "control"),
        ({"primary": ""}, "primary"),
        ({"primary": ["ctr"]}, "primary"),
        ({"secondary": "auc"}, "secondary"),
        ({"secondary": ["ctr"]}, "secondary"),
        ({"secondary": ["auc", "auc"]}, "secondary"),
        ({"guardrails": {"latency": 2}}, "guardrails"),
        ({"guardrails": {"latency": "2 %"}}, "guardrails.latency"),
        ({"guardrails": ["latency"]}, "guardrails"),
        ({"better": {"auc": "high"}}, "better"),
        ({"better": {"ctr": "up"}}, "better"),
        ({"better": "high"}, "better"),
        ({"slices": ["arm"]}, "slices"),
        ({"slices": ["phase"], "phase": "phase"}, "slices"),
        ({"sources": {"a b": 1}}, "sources"),
        ({"sources": {"web": -1}}, "sources.web"),
        ({"closed": {"web": 1}}, "closed"),
        ({"closed": {"web-1": "soon"}, "sources": {"web-1": 1}}, "closed.web-1"),
        ({"closed": ["web"]}, "closed"),
        ({"accepted_changes": {"2": ""}}, "accepted_changes"),
        ({"start": "yesterday"}, "start"),
        ({"start": 1.5}, "start"),
        ({"start": 10**9}, "start"),
        ({"end": "2026-06-01T00"}, "end"),
        ({"users": 0}, "users"),
        ({"users": "many"}, "users"),
        ({"users": 10**400}, "users"),
        ({"counts": None}, "counts"),
        ({"phase": 1}, "phase"),
        ({"min_days": -1}, "min_days"),
        ({"public": "no"}, "public"),
        ({"webhooks": ["file:///etc/passwd"]}, "webhooks"),
        ({"titel": "x"}, "titel"),
    ],
)
def test_what_is_wrong_is_named(wrong, key):
    with pytest.raises(InvalidInputError, match=f"^{key.replace('.', '[.]')}: "):
        Experiment.from_dict(given(**wrong))


def test_what_is_missing_is_named():
    for key in ("id", "arms", "control", "primary", "start"):
        with pytest.raises(InvalidInputError, match=f"^{key}: "):
            Experiment.from_dict({k: v for k, v in given().items() if k != key})
    with pytest.raises(InvalidInputError, match="not valid TOML"):
        Experiment.from_toml("= 1")
    with pytest.raises(InvalidInputError, match="object"):
        Experiment.from_dict(["id"])


def test_changes_are_sentences():
    old = Experiment.from_dict(given())
    assert describe_changes(old, Experiment.from_dict(given(arms={"old": 50, "new": 50}))) == []
    ramped = Experiment.from_dict(given(arms={"old": 80, "new": 20}))
    assert describe_changes(old, ramped)[1] == "planned share of new: changed from 50 % to 20 %"
    assert has_share_change(describe_changes(old, ramped))
    more = Experiment.from_dict(given(guardrails={"latency": 0.02}, secondary=["auc"], end="2026-06-15T00"))
    found = describe_changes(old, more)
    assert found == [
        "guardrails: changed from none to latency 0.02",
        "secondary: changed from none to auc",
        "end: changed from none to 2026-06-15T00",
    ]
    assert not has_share_change(found)
    third = Experiment.from_dict(given(arms={"old": 1, "new": 1, "newer": 1}))
    assert describe_changes(old, third)[2] == "planned share of newer: changed from none to 33.33 %"
    assert describe_changes(third, old)[2] == "planned share of newer: changed from 33.33 % to none"
