"""Deliberate weakenings of the product, each with the cheapest test that has to notice it.

A mutant is one exact piece of text and what takes its place.  Where the text is no longer
there, or is there twice, the mutant fails: find out what has become of the promise that it
stood for, and write it anew.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """``promise`` is what the weakening breaks; ``test`` has to fail, on its own assertion or on an error of ours."""

    name: str
    promise: str
    file: str
    old: str
    new: str
    test: str


NAMED = (
    Mutant(
        name="unconditional log put",
        promise="I2, I5: an entry that stands is never written over",
        file="replicate/logbook.py",
        old="            self.tier.create(key, data)\n",
        new="            self.tier.put(key, BytesBody(data))\n",
        test="tests/core/test_logbook.py::test_slot_of_another_is_told_and_left_alone",
    ),
    Mutant(
        name="age-only orphan collection",
        promise="I9: a writer that stalls for days loses nothing",
        file="replicate/gc.py",
        old="    if known.advisory:\n        return _by_age(found, known.now)\n",
        new="    if True:\n        return _by_age(found, known.now)\n",
        test="tests/retention/test_retention_orphans.py::test_what_a_writer_left_whose_term_is_over_is_collected_by_anybody",
    ),
    Mutant(
        name="no nonce check",
        promise="I5: only our own entry is taken for ours",
        file="replicate/logbook.py",
        old="        if found != data:\n            raise SlotTaken(entry.slot)\n",
        new="        if not found:\n            raise SlotTaken(entry.slot)\n",
        test="tests/core/test_logbook.py::test_slot_of_another_is_told_and_left_alone",
    ),
    Mutant(
        name="manifest before objects",
        promise="I1: what has a manifest is complete",
        file="replicate/commit.py",
        old="            objects = uploader.upload(plan, source.origin, touched, resumed=resumed)\n"
        "            self._still_sealed(source, touched)\n"
        "            manifest = self._manifest(source, planned, prefix, objects)\n",
        new="            objects = tuple(\n"
        "                ManifestObject(\n"
        "                    path=item.path,\n"
        "                    key=item.key,\n"
        "                    size=item.file.size,\n"
        "                    sha256=item.file.sha256,\n"
        "                    verified_by=str(self.log.tier.capabilities.verification),\n"
        "                    part_size=item.part_size,\n"
        "                )\n"
        "                for item in plan.objects\n"
        "            )\n"
        "            manifest = self._manifest(source, planned, prefix, objects)\n"
        "            uploader.upload(plan, source.origin, touched, resumed=resumed)\n"
        "            self._still_sealed(source, touched)\n",
        test="tests/core/test_commit.py::test_order_of_operations",
    ),
    Mutant(
        name="no directory fsync",
        promise="I5: an entry that was created survives a power cut",
        file="tiers/effects.py",
        old='        fsync_fd(fd, f"{path}/")\n',
        new="        pass\n",
        test="tests/tiers/test_volume_durability.py::TestDurability::test_create",
    ),
    Mutant(
        name="HEAD size as verification",
        promise="I1: an object is proved by its bytes",
        file="replicate/upload/proving.py",
        old='f"the object has {info.size} bytes, the file {item.file.size}")\n',
        new='f"the object has {info.size} bytes, the file {item.file.size}")\n'
        "    return shared.tier.capabilities.verification\n",
        test="tests/core/test_upload.py::test_object_of_the_right_size_and_wrong_bytes_does_not_count_on_resume",
    ),
    Mutant(
        name="deletion of old slots",
        promise="I2, I9: the log is never shortened",
        file="replicate/logappender.py",
        old="            self._book.write_head(slot)\n",
        new="            self._book.write_head(slot)\n"
        "            for old in range(slot):\n"
        "                self.tier.delete(self.remote.log(old))\n",
        test="tests/core/test_commit_writers.py::test_fenced_store_goes_on_after_a_restore",
    ),
    Mutant(
        name="claim without lineage",
        promise="I3: an attempt that was left does not go on",
        file="replicate/terms.py",
        old="    if descent.attempt < highest:\n",
        new="    if descent.attempt < 0:\n",
        test="tests/core/test_terms.py::test_decision[overtaken, and its tracker lost]",
    ),
)
"""The eight that reliability.md names."""

FURTHER = (
    Mutant(
        name="tracker ahead of the log",
        promise="I6: completed is said after the entry was read back",
        file="replicate/commit.py",
        old="            if self.log.append(self.log.entry(descent, planned.term, body)) and",
        new="            view = self.log._view()\n"
        "            from replicate.tracker import Completed, Seen\n"
        "            early = Completed(generation=planned.generation, slot=view.next_slot, total_bytes=1,"
        " manifest_sha256=body.manifest_sha256, at='')\n"
        "            self.log.tracker.complete(self.log.name, [early], Seen(slot=view.next_slot, sha256=''))\n"
        "            if self.log.append(self.log.entry(descent, planned.term, body)) and",
        test="tests/core/test_commit.py::test_tracker_is_told_nothing_before_the_entry_was_read_back",
    ),
    Mutant(
        name="no read-back of an entry",
        promise="I5: acknowledged is what was read back",
        file="replicate/logbook.py",
        old="            found = read_small(self.tier, key, MAX_ENTRY_BYTES)\n",
        new="            found = data\n",
        test="tests/core/test_logbook.py::test_create_that_did_not_happen_is_no_success",
    ),
    Mutant(
        name="no read-back of the manifest",
        promise="I1: the manifest that is committed is the one that lies there",
        file="replicate/commit.py",
        old="        if read_small(self.log.tier, key, MAX_MANIFEST_BYTES) != data:\n",
        new="        if not data:\n",
        test="tests/core/test_commit.py::test_manifest_that_reads_back_differently_is_not_committed",
    ),
    Mutant(
        name="a retirement that is not decided anew",
        promise="I10: a pin that comes first wins",
        file="replicate/prune.py",
        old="        def decide() -> tuple[int, Body] | None:\n"
        "            verdict = next((one for one in self.plan().removed if one.id == generation), None)\n",
        new="        plan = self.plan()\n\n"
        "        def decide() -> tuple[int, Body] | None:\n"
        "            verdict = next((one for one in plan.removed if one.id == generation), None)\n",
        test="tests/retention/test_retention_prune.py::test_a_pin_that_comes_first_wins",
    ),
    Mutant(
        name="keep_last counts what is not committed",
        promise="I10: only what is committed counts",
        file="replicate/prune.py",
        old="        return plan_tier(state, self.policy, self.holds(), self.starts(), hurt=hurt)\n",
        new="        coming = [Member(id=one.generation) for one in self.log.tracker.planned(self.log.name)]\n"
        "        return plan_tier(state, self.policy, self.holds(), self.starts(), hurt=hurt, coming=coming)\n",
        test="tests/retention/test_retention_prune.py::"
        "test_c18_only_what_is_committed_counts_and_what_is_under_way_is_left_alone",
    ),
    Mutant(
        name="no delay between retiring and deleting",
        promise="I9, I21: a reader elsewhere has the delay",
        file="replicate/prune.py",
        old="        elif delay:\n",
        new="        elif delay < 0:\n",
        test="tests/retention/test_retention_prune.py::test_bytes_go_after_the_delay_manifest_first_and_nothing_else_with_them",
    ),
    Mutant(
        name="orphans of the present term",
        promise="I9: what may still be committed is no orphan",
        file="replicate/gc.py",
        old="    if prefix.term < term:\n",
        new="    if prefix.term <= term:\n",
        test="tests/retention/test_retention_orphans.py::test_age_alone_collects_nothing",
    ),
    Mutant(
        name="orphans by a damaged log",
        promise="I9: what a damaged entry may commit is no orphan",
        file="replicate/gc.py",
        old="    if view.damaged:\n",
        new="    if view.damaged == ():\n        pass\n    elif not view:\n",
        test="tests/retention/test_retention_orphans.py::test_a_damaged_log_collects_nothing",
    ),
    Mutant(
        name="restore without the digest of a leaf",
        promise="I12: a flipped bit is noticed",
        file="replicate/restore/fetch.py",
        old="    if digest.hexdigest() != leaf.file.leaves[leaf.number]:\n        raise Wrong(",
        new="    if not digest.hexdigest():\n        raise Wrong(",
        test="tests/restore/test_fallback.py::"
        "test_a_newest_that_cannot_be_proved_is_skipped_with_its_reason[first byte of a leaf]",
    ),
    Mutant(
        name="restore without comparing the set of files",
        promise="I11: nothing else lies in what was restored",
        file="replicate/restore/staging.py",
        old="        if faults:\n            raise IntegrityFailure(\n"
        '                f"the restored set is not the sealed one: ',
        new="        if faults is None:\n            raise IntegrityFailure(\n"
        '                f"the restored set is not the sealed one: ',
        test="tests/mutants/test_small_promises.py::test_what_somebody_adds_to_a_staging_is_noticed",
    ),
    Mutant(
        name="restore through a link",
        promise="I13: nothing outside the staging is touched",
        file="replicate/restore/folder.py",
        old="        return Folder(os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=self.fd), self.path / name)\n",
        new="        return Folder(os.open(name, _DIRECTORY, dir_fd=self.fd), self.path / name)\n",
        test="tests/mutants/test_small_promises.py::test_a_link_that_takes_a_folders_place_is_not_followed",
    ),
    Mutant(
        name="no fsync after the rename of a generation",
        promise="I7: a sealed generation survives a power cut",
        file="replicate/generation/seal.py",
        old="    try:\n        effects.fsync_directory(local.generations)\n",
        new="    try:\n        pass\n",
        test="tests/mutants/test_small_promises.py::test_a_generation_is_durable_before_anything_names_it",
    ),
    Mutant(
        name="no fsync after the rename of a document",
        promise="I6: what the lineage says survives a power cut",
        file="replicate/generation/disk.py",
        old="            raise\n        effects.fsync_directory(path.parent)\n",
        new="            raise\n",
        test="tests/mutants/test_small_promises.py::test_a_document_is_durable_when_it_was_written",
    ),
    Mutant(
        name="a part that is resumed by an ETag that was not journalled",
        promise="I1: only what was accepted counts on resume",
        file="replicate/upload/proving.py",
        old="    return known is not None and known.etag == part.etag\n",
        new="    return known is None or known.etag == part.etag\n",
        test="tests/core/test_upload.py::test_listed_part_that_was_never_journalled_is_sent_again",
    ),
    Mutant(
        name="the newest by update",
        promise="I15: the newest is of the latest attempt",
        file="replicate/log/state.py",
        old="        return max(self.live, key=lambda commit: commit.id, default=None)\n",
        new="        return max(self.live, key=lambda commit: commit.id.next_update, default=None)\n",
        test="tests/core/test_log.py::test_newest_is_by_attempt_and_sequence",
    ),
    Mutant(
        name="a fence that is forgotten",
        promise="I3: who was overtaken stays out, also after a restart",
        file="replicate/tracker.py",
        old='            db.execute("UPDATE tier SET fenced=? WHERE name=?", (reason, tier))\n',
        new="            del db\n",
        test="tests/core/test_commit_writers.py::test_higher_claim_in_between_fences",
    ),
    Mutant(
        name="a path that climbs",
        promise="I13: no path leads out of the folder",
        file="replicate/paths.py",
        old='    if name in ("", ".", ".."):\n',
        new='    if name in ("", "."):\n',
        test="tests/core/test_paths.py::test_path_is_refused",
    ),
    Mutant(
        name="a share of the data that reads one leaf too few",
        promise="I12: a share counted up reads everything",
        file="replicate/verify/shares.py",
        old="(start - self.start) % self.total < self.length\n",
        new="(start - self.start) % self.total < self.length - 1\n",
        test="tests/mutants/test_small_promises.py::test_the_parts_of_the_data_cover_it_once",
    ),
    Mutant(
        name="a log that was rolled back",
        promise="I15: who has seen more refuses less",
        file="replicate/logwriter.py",
        old="            self._check_not_shorter(view)\n",
        new="            pass\n",
        test="tests/core/test_logbook.py::test_rollback_of_the_log_is_noticed_against_what_the_tracker_saw",
    ),
    Mutant(
        name="appending to a damaged log",
        promise="I2: nothing follows a slot that nobody can read",
        file="replicate/logbook.py",
        old="        if not mending:\n            self.refuse_damaged(view)\n",
        new="",
        test="tests/core/test_logbook.py::test_damaged_slot_is_reported_and_stepped_over",
    ),
    Mutant(
        name="a commit of a stale term that counts",
        promise="I3: no commit of a lower term follows a higher claim",
        file="replicate/log/folding.py",
        old="    if isinstance(body, Commit | Retire | Void) and entry.term != state.term:\n",
        new="    if isinstance(body, Retire | Void) and entry.term != state.term:\n",
        test="tests/core/test_log.py::test_what_breaks_a_rule_changes_nothing_and_is_named",
    ),
    Mutant(
        name="a manifest that its commit does not bind",
        promise="I12, I16: a manifest that was swapped is refused",
        file="replicate/verify/manifests.py",
        old=" or canonical.sha256(data) != commit.manifest_sha256:\n",
        new=":\n",
        test="tests/mutants/test_small_promises.py::test_a_manifest_is_what_its_commit_says_to_the_last_byte",
    ),
    Mutant(
        name="replicating what was not validated",
        promise="promise 11: only what was validated goes up",
        file="replicate/plan.py",
        old="    if not fact.validated:\n",
        new="    if fact.validated is None:\n",
        test="tests/core/test_plan.py::test_only_validated_generations_go_up",
    ),
    Mutant(
        name="a sequence that is used twice",
        promise="I4: a generation has one id",
        file="replicate/layout.py",
        old="    return secrets.token_hex(8)\n",
        new='    return "0" * 16\n',
        test="tests/core/test_layout.py::test_prefix_carries_term_and_nonce_and_nonces_do_not_repeat",
    ),
)
"""What else would hurt."""

MUTANTS = (*NAMED, *FURTHER)
