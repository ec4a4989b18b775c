"""What a bucket should have: a rule that ends unfinished uploads, and no surprise about versions."""

from tiers.errors import TierError
from tiers.probing.outcomes import Outcome, Subject, no, unknown, whether, yes
from tiers.probing.s3_requests import Store, brief
from tiers.s3_errors import answer_code
from tiers.s3_sdk import ClientError


def check_lifecycle(store: Store) -> list[Outcome]:
    """Look for a rule that aborts incomplete multipart uploads under our prefix."""
    try:
        answer = store.ask("probe", lambda: _lifecycle(store))
    except TierError as error:
        return [unknown(Subject.LIFECYCLE, f"may not be asked: {brief(error)}")]
    ours = store.root + store.scratch
    rules = [rule for rule in answer.get("Rules", []) if rule.get("Status") == "Enabled"]
    days = [
        rule["AbortIncompleteMultipartUpload"]["DaysAfterInitiation"]
        for rule in rules
        if "AbortIncompleteMultipartUpload" in rule and ours.startswith(_prefix(rule))
    ]
    if not days:
        return [no(Subject.LIFECYCLE, "no rule ends unfinished uploads")]
    return [yes(Subject.LIFECYCLE, f"unfinished uploads end after {min(days)} days")]


def _lifecycle(store: Store) -> dict[str, object]:
    try:
        return dict(store.plain.get_bucket_lifecycle_configuration(Bucket=store.bucket))
    except ClientError as error:
        if answer_code(error)[0] != "NoSuchLifecycleConfiguration":
            raise
        return dict(error.response)


def _prefix(rule: dict[str, object]) -> str:
    filters = rule.get("Filter")
    inner = filters if isinstance(filters, dict) else {}
    both = inner.get("And")
    inner = both if isinstance(both, dict) else inner
    if inner.get("Tags") or inner.get("Tag") or inner.get("ObjectSizeGreaterThan"):
        return "\0"  # only for some objects: never ours
    return str(inner.get("Prefix") or rule.get("Prefix") or "")


def check_versioning(store: Store) -> list[Outcome]:
    """Ask whether the bucket keeps what is deleted, and bills it."""
    try:
        answer = store.ask("probe", lambda: store.plain.get_bucket_versioning(Bucket=store.bucket))
    except TierError as error:
        return [unknown(Subject.VERSIONING, f"may not be asked: {brief(error)}")]
    status = answer.get("Status") or "never enabled"
    return [
        whether(
            Subject.VERSIONING, status == "Enabled", "what is deleted stays, and is billed", f"versioning: {status}"
        )
    ]
