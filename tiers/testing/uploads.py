"""Checks of uploads in parts."""

import hashlib
from contextlib import suppress
from dataclasses import replace

import pytest

from tiers.bodies import BytesBody
from tiers.errors import IntegrityError, ObjectNotFound, TierError, TierUnavailable, Unsupported
from tiers.protocol import Key, ObjectInfo, Part, Tier, Upload, Verification, all_parts
from tiers.testing.base import ConformanceBase, TierFactory, content, race, send_parts, slices, upload_all
from tiers.testing.objects import assert_holds, assert_missing, wrong_digest


def refuses_uploads(tier: Tier) -> bool:
    """Tell whether the tier has no part verbs; it must then say Unsupported."""
    if tier.capabilities.multipart:
        return False
    with pytest.raises(Unsupported):
        tier.begin_upload(Key("up/none"), size=10, part_size=5)
    return True


def begin(tier: Tier, key: str, data: bytes, part_size: int) -> Upload:
    """Open an upload for ``data``."""
    return tier.begin_upload(Key(key), size=len(data), part_size=part_size)


def assert_refused(tier: Tier, upload: Upload, parts: list[Part]) -> None:
    """Fail unless complete refuses the parts for good, and nothing appears."""
    with pytest.raises(TierError) as caught:
        tier.complete(upload, parts)
    assert not isinstance(caught.value, TierUnavailable), "a retry would not help"
    assert_missing(tier, upload.key)


class UploadChecks(ConformanceBase):
    """begin_upload, put_part, list_parts, copy_part, complete, abort."""

    def test_upload_round_trip(self, tier: Tier, part_size: int) -> None:
        """Objects of one part, of full parts, and with a smaller last part come back whole."""
        if refuses_uploads(tier):
            return
        for size in (1, part_size - 1, part_size, part_size + 1, 2 * part_size, 2 * part_size + 7):
            key = Key(f"up/{size}")
            info = upload_all(tier, key, content(size), part_size)
            assert (info.key, info.size) == (key, size)
            assert_holds(tier, key, content(size))

    def test_upload_attests_no_digest_but_the_composite(self, tier: Tier, part_size: int) -> None:
        """A digest of an object of several parts is that over its parts' digests, or none."""
        if refuses_uploads(tier):
            return
        data = content(part_size + 7)
        digests = [hashlib.sha256(piece).digest() for piece in slices(data, part_size)]
        composite = hashlib.sha256(b"".join(digests)).hexdigest()
        upload = tier.begin_upload(Key("up/sum"), size=len(data), part_size=part_size)
        parts = send_parts(tier, upload, data)
        for part, digest in zip(parts, digests, strict=True):
            assert part.sha256 in (None, digest.hex())
        info = tier.complete(upload, parts)
        assert info.sha256 in (None, composite)
        assert tier.stat(Key("up/sum")).sha256 in (None, composite)
        if tier.capabilities.verification is Verification.STORE_SHA256:
            assert [part.sha256 for part in parts] == [digest.hex() for digest in digests]
            assert info.sha256 == composite

    def test_parts_in_any_order_and_at_once(self, tier: Tier, part_size: int) -> None:
        """Parts are sent by several threads, in whatever order they finish."""
        if refuses_uploads(tier):
            return
        data = content(3 * part_size + 5)
        upload = begin(tier, "up/threads", data, part_size)
        pieces = slices(data, part_size)
        results = race(len(pieces), lambda n: tier.put_part(upload, n + 1, BytesBody(pieces[n])))
        parts = [part for part in results if isinstance(part, Part)]
        assert len(parts) == len(pieces), results
        tier.complete(upload, parts)
        assert_holds(tier, Key("up/threads"), data)

    def test_unfinished_upload_is_invisible(self, tier: Tier, part_size: int) -> None:
        """Nothing is seen under the key, or anywhere, before complete."""
        if refuses_uploads(tier):
            return
        data = content(part_size + 5)
        upload = begin(tier, "up/unseen", data, part_size)
        assert_missing(tier, upload.key)
        send_parts(tier, upload, data)
        assert_missing(tier, upload.key)
        assert tier.list_objects("").objects == ()

    def test_unfinished_upload_leaves_what_is_there(self, tier: Tier, part_size: int) -> None:
        """An object under the same key stays whole until complete."""
        if refuses_uploads(tier):
            return
        tier.put(Key("up/old"), BytesBody(b"old"))
        upload = tier.begin_upload(Key("up/old"), size=part_size, part_size=part_size)
        tier.put_part(upload, 1, BytesBody(content(part_size)))
        assert_holds(tier, Key("up/old"), b"old")
        tier.abort(upload)
        assert_holds(tier, Key("up/old"), b"old")

    def test_list_parts(self, tier: Tier, part_size: int) -> None:
        """The parts that were accepted are listed in order of number, as put_part described them."""
        if refuses_uploads(tier):
            return
        data = content(4 * part_size)
        upload = begin(tier, "up/parts", data, part_size)
        assert list(all_parts(tier, upload)) == []
        sent = {n: tier.put_part(upload, n, BytesBody(slices(data, part_size)[n - 1])) for n in (4, 1, 3)}
        listed = list(all_parts(tier, upload))
        assert [part.number for part in listed] == [1, 3, 4]
        for part in listed:
            assert (part.size, part.etag) == (part_size, sent[part.number].etag)
            assert part.sha256 in (None, sent[part.number].sha256)

    def test_replace_a_part(self, tier: Tier, part_size: int) -> None:
        """A number that is sent again holds the new bytes, and only those."""
        if refuses_uploads(tier):
            return
        data = content(part_size + 9)
        upload = begin(tier, "up/replace", data, part_size)
        tier.put_part(upload, 1, BytesBody(content(part_size, seed=5)))
        parts = send_parts(tier, upload, data)
        listed = [part.etag for part in all_parts(tier, upload)]
        assert listed in ([part.etag for part in parts], [part.etag for part in parts[1:]])
        tier.complete(upload, parts)
        assert_holds(tier, Key("up/replace"), data)

    def test_put_part_of_wrong_bytes(self, tier: Tier, part_size: int) -> None:
        """A store that claims to check refuses a part that is not the sealed one; another does not vouch for it."""
        if refuses_uploads(tier):
            return
        upload = begin(tier, "up/wrong", content(part_size), part_size)
        body = wrong_digest(part_size)
        try:
            part = tier.put_part(upload, 1, body)
        except IntegrityError:
            assert list(all_parts(tier, upload)) == []
            return
        assert tier.capabilities.verification is not Verification.STORE_SHA256, "wrong bytes were accepted"
        assert part.sha256 != body.sha256, "a digest was attested that nobody checked"

    def test_complete_refuses_a_missing_part(self, tier: Tier, part_size: int) -> None:
        """Parts that lack the first, a middle or the last one make no object."""
        if refuses_uploads(tier):
            return
        data = content(2 * part_size + 5)
        upload = begin(tier, "up/hole", data, part_size)
        parts = send_parts(tier, upload, data)
        for missing in range(3):
            assert_refused(tier, upload, parts[:missing] + parts[missing + 1 :])
        assert_refused(tier, upload, [])
        tier.complete(upload, parts)
        assert_holds(tier, Key("up/hole"), data)

    def test_complete_refuses_a_part_never_sent(self, tier: Tier, part_size: int) -> None:
        """A part that only the caller believes in makes no object."""
        if refuses_uploads(tier):
            return
        data = content(part_size + 5)
        upload = begin(tier, "up/never", data, part_size)
        first = tier.put_part(upload, 1, BytesBody(data[:part_size]))
        assert_refused(tier, upload, [first, replace(first, number=2, size=5)])

    def test_complete_with_a_replaced_part(self, tier: Tier, part_size: int) -> None:
        """A part that was replaced is refused, or is the one that is used: never another one than was named."""
        if refuses_uploads(tier):
            return
        data = content(part_size)
        upload = begin(tier, "up/etag", data, part_size)
        old = tier.put_part(upload, 1, BytesBody(content(part_size, seed=9)))
        new = tier.put_part(upload, 1, BytesBody(data))
        assert old.etag != new.etag
        with suppress(IntegrityError, Unsupported, ObjectNotFound):  # a refusal that no retry would change
            tier.complete(upload, [old])
            assert_holds(tier, Key("up/etag"), content(part_size, seed=9))
            return
        assert_missing(tier, upload.key)
        tier.complete(upload, [new])
        assert_holds(tier, Key("up/etag"), data)

    def test_complete_refuses_an_unknown_etag(self, tier: Tier, part_size: int) -> None:
        """A part that is not the one that the store holds makes no object."""
        if refuses_uploads(tier):
            return
        upload = begin(tier, "up/unknown", content(part_size), part_size)
        part = tier.put_part(upload, 1, BytesBody(content(part_size)))
        assert_refused(tier, upload, [replace(part, etag="0123456789abcdef0123456789abcdef", sha256=None)])

    def test_complete_ends_the_upload(self, tier: Tier, part_size: int) -> None:
        """After complete the upload is gone; the object is what the caller finds by stat."""
        if refuses_uploads(tier):
            return
        data = content(part_size + 1)
        upload = begin(tier, "up/done", data, part_size)
        parts = send_parts(tier, upload, data)
        tier.complete(upload, parts)
        with pytest.raises(ObjectNotFound):
            tier.list_parts(upload)
        with pytest.raises(ObjectNotFound):
            tier.put_part(upload, 1, BytesBody(data[:part_size]))
        with suppress(ObjectNotFound):  # some stores remember, and answer as they did before
            assert tier.complete(upload, parts).size == len(data)
        assert_holds(tier, Key("up/done"), data)

    def test_abort_frees_and_repeats(self, tier: Tier, part_size: int) -> None:
        """An aborted upload is gone for every verb, nothing appeared, and abort is safe to repeat."""
        if refuses_uploads(tier):
            return
        data = content(part_size + 1)
        upload = begin(tier, "up/abort", data, part_size)
        parts = send_parts(tier, upload, data)
        tier.abort(upload)
        tier.abort(upload)
        with pytest.raises(ObjectNotFound):
            tier.put_part(upload, 1, BytesBody(data[:part_size]))
        with pytest.raises(ObjectNotFound):
            tier.list_parts(upload)
        with pytest.raises(ObjectNotFound):
            tier.complete(upload, parts)
        assert_missing(tier, upload.key)

    def test_uploads_of_one_key_are_separate(self, tier: Tier, part_size: int) -> None:
        """Two uploads under one key do not mix; aborting one leaves the other."""
        if refuses_uploads(tier):
            return
        data = content(part_size + 3)
        first = begin(tier, "up/twin", data, part_size)
        second = begin(tier, "up/twin", data, part_size)
        assert first.upload_id != second.upload_id
        tier.put_part(first, 1, BytesBody(content(part_size, seed=3)))
        parts = send_parts(tier, second, data)
        tier.abort(first)
        tier.complete(second, parts)
        assert_holds(tier, Key("up/twin"), data)

    def test_resume_elsewhere(self, tier: Tier, open_another: TierFactory, part_size: int) -> None:
        """An upload is plain data: another machine lists its parts and finishes it.

        Not every store lists digests, so what ``put_part`` returned is kept, as a journal does.
        """
        if refuses_uploads(tier):
            return
        if not tier.capabilities.resumable:
            return
        data = content(2 * part_size + 11)
        upload = begin(tier, "up/resume", data, part_size)
        sent = {
            number: tier.put_part(upload, number, BytesBody(slices(data, part_size)[number - 1])) for number in (1, 3)
        }
        tier.close()
        other = open_another()
        held = {part.number: replace(part, sha256=sent[part.number].sha256) for part in all_parts(other, upload)}
        assert sorted(held) == [1, 3]
        assert all(held[number].etag == part.etag for number, part in sent.items())
        held[2] = other.put_part(upload, 2, BytesBody(slices(data, part_size)[1]))
        other.complete(upload, [held[number] for number in (1, 2, 3)])
        assert_holds(other, Key("up/resume"), data)

    def test_copy_part(self, tier: Tier, part_size: int) -> None:
        """Parts filled inside the store hold the source's bytes."""
        if refuses_uploads(tier):
            return
        data = content(3 * part_size)
        wanted = data[7 : 7 + part_size] + data[:5]
        upload = begin(tier, "copy/target", wanted, part_size)
        source = tier.put(Key("copy/source"), BytesBody(data))
        if not tier.capabilities.copy_part:
            with pytest.raises(Unsupported):
                tier.copy_part(upload, 1, source, 7, part_size)
            return
        stat = tier.stat(Key("copy/source"))
        parts = [tier.copy_part(upload, 1, stat, 7, part_size), tier.copy_part(upload, 2, stat, 0, 5)]
        tier.complete(upload, parts)
        assert_holds(tier, Key("copy/target"), wanted)
        assert_holds(tier, Key("copy/source"), data)

    def test_copy_part_of_a_changed_source_is_refused(self, tier: Tier, part_size: int) -> None:
        """A source that is no longer the object that was described is not copied."""
        if refuses_uploads(tier):
            return
        if not tier.capabilities.copy_part:
            return
        upload = begin(tier, "copy/stale", content(part_size), part_size)
        old = self._replaced_source(tier, part_size)
        for source in (old, replace(old, etag="no-such-etag"), replace(old, key=Key("copy/absent"))):
            with pytest.raises(TierError) as caught:
                tier.copy_part(upload, 1, source, 0, part_size)
            assert not isinstance(caught.value, TierUnavailable), "a retry would not help"
        assert list(all_parts(tier, upload)) == []

    @staticmethod
    def _replaced_source(tier: Tier, part_size: int) -> ObjectInfo:
        tier.put(Key("copy/source"), BytesBody(content(part_size, seed=1)))
        old = tier.stat(Key("copy/source"))
        tier.put(Key("copy/source"), BytesBody(content(part_size, seed=2)))
        return old
