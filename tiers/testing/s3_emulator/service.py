"""The store as a function of requests: who asks, may they, and what becomes of it."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType

from tiers.testing.s3_emulator import buckets, listings, objects, uploads
from tiers.testing.s3_emulator.answers import Answer, Refusal, not_implemented
from tiers.testing.s3_emulator.asked import LONGEST_KEY, Asked
from tiers.testing.s3_emulator.behaviour import WrongRegion
from tiers.testing.s3_emulator.call import Call
from tiers.testing.s3_emulator.conditions import is_checked_create
from tiers.testing.s3_emulator.operations import Operation
from tiers.testing.s3_emulator.payload import Reception
from tiers.testing.s3_emulator.signing import (
    Authorization,
    ChunkSignatures,
    Credentials,
    authorization,
    check_signature,
    identify,
    signing_key,
)
from tiers.testing.s3_emulator.state import State
from tiers.testing.s3_emulator.wire import WireBody

Handler = Callable[[Call], Answer]

_HANDLERS: Mapping[Operation, Handler] = MappingProxyType(
    {
        Operation.LIST_BUCKETS: buckets.list_buckets,
        Operation.CREATE_BUCKET: buckets.create_bucket,
        Operation.DELETE_BUCKET: buckets.delete_bucket,
        Operation.HEAD_BUCKET: buckets.head_bucket,
        Operation.GET_BUCKET_LOCATION: buckets.get_location,
        Operation.GET_BUCKET_VERSIONING: buckets.get_versioning,
        Operation.PUT_BUCKET_VERSIONING: buckets.put_versioning,
        Operation.GET_BUCKET_LIFECYCLE: buckets.get_lifecycle,
        Operation.LIST_OBJECTS: listings.list_objects,
        Operation.LIST_OBJECTS_V2: listings.list_objects_v2,
        Operation.LIST_OBJECT_VERSIONS: listings.list_versions,
        Operation.LIST_MULTIPART_UPLOADS: uploads.list_uploads,
        Operation.DELETE_OBJECTS: objects.delete_objects,
        Operation.PUT_OBJECT: objects.put_object,
        Operation.COPY_OBJECT: objects.copy_object,
        Operation.GET_OBJECT: objects.get_object,
        Operation.HEAD_OBJECT: objects.head_object,
        Operation.DELETE_OBJECT: objects.delete_object,
        Operation.CREATE_UPLOAD: uploads.create_upload,
        Operation.UPLOAD_PART: uploads.upload_part,
        Operation.UPLOAD_PART_COPY: uploads.upload_part_copy,
        Operation.LIST_PARTS: uploads.list_parts,
        Operation.COMPLETE_UPLOAD: uploads.complete_upload,
        Operation.ABORT_UPLOAD: uploads.abort_upload,
    }
)

_WITHOUT_BUCKET = frozenset({Operation.LIST_BUCKETS, Operation.CREATE_BUCKET})


class Service:
    """Answers requests; knows nothing of connections."""

    def __init__(self, state: State, credentials: Iterable[Credentials], url: Callable[[], str]) -> None:
        self._state = state
        self._known = {each.access_key: each for each in credentials}
        self._url = url

    def answer(self, asked: Asked, wire: WireBody) -> Answer:
        """Return the answer; the body is read as far as it is wanted."""
        try:
            return self._answer(asked, wire)
        except Refusal as refusal:
            return refusal.answer(asked.resource)

    def _answer(self, asked: Asked, wire: WireBody) -> Answer:
        auth = authorization(asked.headers)
        self._check_region(auth, asked)
        known = identify(auth, self._known.get(auth.access_key), asked.headers, self._state.now())
        key = signing_key(known.secret_key, auth.scope)
        check_signature(key, auth, asked.head.method, asked.head.target, asked.headers)
        allowed = self._state.behaviour.may & (known.may if known.may is not None else self._state.behaviour.may)
        operation = self._permitted(asked, allowed)
        if operation not in _WITHOUT_BUCKET:
            with self._state.lock:
                self._state.bucket(asked.bucket)
        reception = Reception(asked, self._state.behaviour, auth.payload_hash, ChunkSignatures(key, auth))
        with self._reserved(asked):
            body = reception.receive(wire)
            with self._state.lock:
                return _HANDLERS[operation](Call(state=self._state, asked=asked, body=body, may=allowed))

    def _check_region(self, auth: Authorization, asked: Asked) -> None:
        behaviour = self._state.behaviour
        if behaviour.regions is None or auth.region in behaviour.regions:
            return
        region = {"x-amz-bucket-region": behaviour.location}
        match behaviour.wrong_region:
            case WrongRegion.MALFORMED:
                message = f"the region '{auth.region}' is wrong; expecting '{behaviour.location}'"
                details = (("Region", behaviour.location),)
                raise Refusal(400, "AuthorizationHeaderMalformed", message, headers=region, details=details)
            case WrongRegion.PERMANENT_REDIRECT:
                message = "The bucket you are attempting to access must be addressed using the specified endpoint."
                raise Refusal(301, "PermanentRedirect", message, headers=region, details=(("Bucket", asked.bucket),))
            case WrongRegion.TEMPORARY_REDIRECT:
                headers = region | {"Location": self._url() + asked.head.target}
                raise Refusal(307, "TemporaryRedirect", "Please re-send this request to the endpoint.", headers=headers)

    def _permitted(self, asked: Asked, allowed: frozenset[Operation]) -> Operation:
        operation, behaviour = asked.operation, self._state.behaviour
        if operation is None or operation in behaviour.lacks:
            raise not_implemented(asked.name)
        if operation not in allowed:
            raise Refusal(403, "AccessDenied", f"Not authorized to perform s3:{operation}")
        if len(asked.key.encode()) > LONGEST_KEY:
            raise Refusal(400, "KeyTooLongError", "Your key is too long")
        limits = {Operation.PUT_OBJECT: behaviour.max_put, Operation.UPLOAD_PART: behaviour.max_part}
        declared = asked.headers.get("x-amz-decoded-content-length", asked.headers.get("content-length", "0"))
        if operation in limits and declared.isdecimal() and int(declared) > limits[operation]:
            details = (("ProposedSize", declared), ("MaxSizeAllowed", limits[operation]))
            message = "Your proposed upload exceeds the maximum allowed size"
            raise Refusal(400, "EntityTooLarge", message, details=details)
        return operation

    def _reserved(self, asked: Asked) -> AbstractContextManager[None]:
        """Keep other creates of the key away, where the store does that."""
        behaviour = self._state.behaviour
        if behaviour.conflicts_in_flight and is_checked_create(asked, behaviour):
            return self._state.creating(asked.bucket, asked.key)
        return nullcontext()
