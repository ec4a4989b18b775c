"""Preconditions of requests."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from tiers.testing.s3_emulator.answers import Answer, Refusal, not_implemented
from tiers.testing.s3_emulator.asked import Asked
from tiers.testing.s3_emulator.behaviour import Behaviour, ConditionRule
from tiers.testing.s3_emulator.operations import Operation
from tiers.testing.s3_emulator.state import StoredObject


def precondition_failed(condition: str) -> Refusal:
    """Return the 412 that names its condition."""
    message = "At least one of the pre-conditions you specified did not hold"
    return Refusal(412, "PreconditionFailed", message, details=(("Condition", condition),))


def _absent_rule(asked: Asked, behaviour: Behaviour) -> ConditionRule:
    completing = asked.operation is Operation.COMPLETE_UPLOAD
    return behaviour.complete_if_absent if completing else behaviour.put_if_absent


def is_checked_create(asked: Asked, behaviour: Behaviour) -> bool:
    """Whether a request is a put-if-absent that the store honours."""
    return "if-none-match" in asked.headers and _absent_rule(asked, behaviour) is ConditionRule.CHECKED


def check_write(asked: Asked, behaviour: Behaviour, held: StoredObject | None) -> None:
    """Refuse a write whose If-None-Match or If-Match does not hold."""
    if "if-none-match" in asked.headers:
        rule = _absent_rule(asked, behaviour)
        if rule is ConditionRule.REFUSED or (
            rule is ConditionRule.CHECKED and asked.headers["if-none-match"].strip('"') != "*"
        ):
            raise not_implemented("If-None-Match")
        if rule is ConditionRule.CHECKED and held is not None:
            raise precondition_failed("If-None-Match")
    _check_match(asked, behaviour, behaviour.put_if_match, held)


def check_delete(asked: Asked, behaviour: Behaviour, held: StoredObject | None) -> None:
    """Refuse a delete whose If-Match does not hold."""
    _check_match(asked, behaviour, behaviour.delete_if_match, held)


def _check_match(asked: Asked, behaviour: Behaviour, rule: ConditionRule, held: StoredObject | None) -> None:
    if "if-match" not in asked.headers or rule is ConditionRule.IGNORED:
        return
    if rule is ConditionRule.REFUSED:
        raise not_implemented("If-Match")
    if held is None:
        if behaviour.missing_if_match == 404:  # noqa: PLR2004 - the status of NoSuchKey
            raise Refusal(404, "NoSuchKey", "The specified key does not exist.")
        raise precondition_failed("If-Match")
    if not names(asked.headers["if-match"], held):
        raise precondition_failed("If-Match")


def names(header: str, held: StoredObject) -> bool:
    """Whether a list of ETags names this object."""
    given = {etag.strip().strip('"') for etag in header.split(",")}
    return "*" in given or held.etag in given


def check_read(asked: Asked, held: StoredObject) -> Answer | None:
    """Refuse a read whose conditions do not hold; a 304 where the client has it already."""
    headers = asked.headers
    if "if-match" in headers:
        if not names(headers["if-match"], held):
            raise precondition_failed("If-Match")
    elif (since := _time(headers.get("if-unmodified-since"))) and held.modified.replace(microsecond=0) > since:
        raise precondition_failed("If-Unmodified-Since")
    if "if-none-match" in headers:
        unchanged = names(headers["if-none-match"], held)
    else:
        since = _time(headers.get("if-modified-since"))
        unchanged = since is not None and held.modified.replace(microsecond=0) <= since
    return Answer(status=304, headers={"ETag": f'"{held.etag}"'}) if unchanged else None


def _time(text: str | None) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text) if text else None
    except ValueError:
        return None
    return moment.astimezone(UTC) if moment is not None else None
