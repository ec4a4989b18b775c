"""Buckets: their existence and configuration."""

from tiers.testing.s3_emulator.answers import Answer, Refusal, xml_answer
from tiers.testing.s3_emulator.behaviour import LifecycleRule
from tiers.testing.s3_emulator.call import Call
from tiers.testing.s3_emulator.documents import Node, document, parse


def list_buckets(call: Call) -> Answer:
    """List the buckets."""
    state = call.state
    nodes: list[Node] = [
        ("Bucket", [("Name", bucket.name), ("CreationDate", bucket.created.strftime("%Y-%m-%dT%H:%M:%S.000Z"))])
        for bucket in state.buckets.values()
    ]
    return xml_answer(document("ListAllMyBucketsResult", ("Buckets", nodes)))


def create_bucket(call: Call) -> Answer:
    """Add a bucket; one that is there is one's own."""
    state, asked = call.state, call.asked
    if asked.bucket in state.buckets:
        raise Refusal(409, "BucketAlreadyOwnedByYou", "Your previous request to create the bucket succeeded")
    state.create_bucket(asked.bucket)
    return Answer(headers={"Location": f"/{asked.bucket}"})


def delete_bucket(call: Call) -> Answer:
    """Remove an empty bucket."""
    state = call.state
    bucket = call.bucket
    if bucket.objects:
        raise Refusal(409, "BucketNotEmpty", "The bucket you tried to delete is not empty")
    del state.buckets[bucket.name]
    return Answer(status=204)


def head_bucket(call: Call) -> Answer:
    """Say that a bucket is there, and where."""
    state = call.state
    return Answer(headers={"x-amz-bucket-region": state.behaviour.location})


def get_location(call: Call) -> Answer:
    """Name the region; nothing for the oldest, as S3 does."""
    state = call.state
    location = state.behaviour.location
    return xml_answer(document("LocationConstraint", text="" if location == "us-east-1" else location))


def get_versioning(call: Call) -> Answer:
    """Say whether versions are kept."""
    status = call.bucket.versioning
    return xml_answer(document("VersioningConfiguration", *([("Status", status)] if status else [])))


def put_versioning(call: Call) -> Answer:
    """Turn versioning on, or suspend it."""
    bucket, root = call.bucket, parse(call.body.data)
    status = root.findtext("Status", "") if root is not None else ""
    if status not in {"Enabled", "Suspended"}:
        raise Refusal(400, "MalformedXML", "The XML you provided was not well-formed or did not validate")
    bucket.versioning = status
    return Answer()


def get_lifecycle(call: Call) -> Answer:
    """Return the lifecycle's rules."""
    state = call.state
    if not state.behaviour.lifecycle:
        raise Refusal(404, "NoSuchLifecycleConfiguration", "The lifecycle configuration does not exist")
    return xml_answer(document("LifecycleConfiguration", *(("Rule", _rule(r)) for r in state.behaviour.lifecycle)))


def _rule(rule: LifecycleRule) -> list[Node]:
    nodes: list[Node] = [("ID", rule.rule_id), ("Filter", [("Prefix", rule.prefix)]), ("Status", "Enabled")]
    if rule.abort_incomplete_days is not None:
        nodes.append(("AbortIncompleteMultipartUpload", [("DaysAfterInitiation", rule.abort_incomplete_days)]))
    if rule.expire_days is not None:
        nodes.append(("Expiration", [("Days", rule.expire_days)]))
    if rule.noncurrent_days is not None:
        nodes.append(("NoncurrentVersionExpiration", [("NoncurrentDays", rule.noncurrent_days)]))
    if rule.transition is not None:
        days, storage_class = rule.transition
        nodes.append(("Transition", [("Days", days), ("StorageClass", storage_class)]))
    return nodes
