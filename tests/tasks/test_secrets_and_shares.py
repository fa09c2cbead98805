"""Which secrets sign a tenant's webhooks, and which links open a video."""

import base64

import pytest

from turnout.tasks.share_rules import Share, new_share, split_share_token
from turnout.tasks.task_rules import TaskId
from turnout.tasks.webhook_secret_rules import (
    OldSecret,
    WebhookSecret,
    rotated,
    secret_bytes,
    secret_of,
    signing,
)
from turnout.tenants.key_rules import secret_digest

TASK = TaskId("video_1")


def test_a_secret_is_written_as_standard_webhooks_write_it() -> None:
    assert secret_of(b"some key") == "whsec_" + base64.b64encode(b"some key").decode()
    assert secret_bytes(secret_of(b"some key")) == b"some key"


@pytest.mark.parametrize(
    ("secret", "problem"),
    [("c29tZQ==", "it does not start with whsec_"), ("whsec_a", "."), ("whsec_c29t ZQ==", ".")],
)
def test_what_is_no_secret_is_named(secret: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{problem}"):
        secret_bytes(secret)


def test_the_service_s_secret_signs_for_who_has_none_and_beside_the_first_of_their_own() -> None:
    assert signing(None, "service", 0.0) == ("service",)
    first = rotated(None, "one", 100.0, 10.0)
    assert first == WebhookSecret("one", 100.0, (OldSecret(None, 110.0),))
    assert signing(first, "service", 109.9) == ("one", "service")
    assert signing(first, "service", 110.0) == ("one",)


def test_older_secrets_end_with_the_overlap_or_sooner_if_they_were_to() -> None:
    second = rotated(rotated(None, "one", 100.0, 50.0), "two", 110.0, 20.0)
    assert second == WebhookSecret("two", 110.0, (OldSecret("one", 130.0), OldSecret(None, 130.0)))
    third = rotated(second, "three", 120.0, 100.0)
    assert third.old == (OldSecret("two", 220.0), OldSecret("one", 130.0), OldSecret(None, 130.0))
    assert signing(third, "service", 125.0) == ("three", "two", "one", "service")
    assert signing(third, "service", 130.0) == ("three", "two")
    assert rotated(third, "four", 130.0, 10.0).old == (OldSecret("three", 140.0), OldSecret("two", 140.0))


def test_without_an_overlap_only_the_new_one_signs() -> None:
    assert rotated(rotated(None, "one", 100.0, 50.0), "two", 110.0, 0.0).old == ()


def test_the_newest_four_old_secrets_are_kept() -> None:
    secret = None
    for number in range(8):
        secret = rotated(secret, str(number), 100.0, 50.0)
    assert secret is not None and signing(secret, "service", 100.0) == ("7", "6", "5", "4", "3")


def test_a_link_opens_with_its_secret_until_it_expires() -> None:
    share, token = new_share("s1", "secret", TASK, 50.0)
    assert share == Share("s1", TASK, secret_digest("secret"), 50.0)
    assert token == "video_1.s1.secret" and split_share_token(token) == (TASK, "s1", "secret")
    assert [share.opens("secret", now) for now in (0.0, 49.9, 50.0)] == [True, True, False]
    assert not share.opens("secre", 0.0)


@pytest.mark.parametrize("token", ["", "a", "a.b", "a.b.c.d", ".b.c", "a..c", "a.b."])
def test_what_is_no_link_of_ours_opens_nothing(token: str) -> None:
    assert split_share_token(token) is None
