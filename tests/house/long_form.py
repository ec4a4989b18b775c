"""A pytest plugin: the long form, that `scripts/test --all` runs and CI leaves out to stay within its time.

Each of them has a shorter sister that CI runs: another mode of the same suite, or another store.  What takes longest
goes first, so that no worker is left alone with it at the end.
"""

import re

import pytest

LONG = re.compile(
    r"tests/tiers/test_s3_emulator_(signing|bytes|objects|buckets|uploads|faults)\.py"
    r"|tests/tiers/test_s3_emulator_conformance\.py.*\[(?!aws)[\w-]+-https"
    r"|tests/tiers/test_s3_leaks\.py"
    r"|tests/tiers/test_volume_direct\.py::TestKilled.*object mount"
    r"|tests/tiers/test_fsspec_writes\.py.*memory_is_bounded"
    r"|tests/tiers/test_probe_s3\.py::test_dialects"
    r"|tests/hub/"
    r"|tests/tiers/test_s3_conformance\.py::TestMoto"
    r"|tests/tiers/test_fsspec_conformance\.py::TestFsspecS3"
    r"|tests/tiers/test_volume_direct\.py::TestRaces.*object mount"
    r"|tests/crash/test_(kinds|copy)_killed\.py"
    r"|tests/crash/test_\w+\.py.*\[all\]"
    r"|tests/retention/test_retention_s3\.py"
    r"|tests/flows/test_tier_kinds\.py.*(ceph|generic|local|memory|r2|s3fs)"
    r"|tests/tiers/test_volume_modes\.py::TestRenameOnFuse"
    r"|tests/tiers/test_volume_durability\.py.*killed_anywhere\[(upload|put)\]"
    r"|tests/tiers/test_volume_direct\.py::TestKilled::test_(in_place_of_another|a_delete)"
    r"|tests/tiers/test_s3_emulator_conformance\.py.*\[(ceph-rgw|b2|runpod|seaweedfs)-http"
    r"|tests/tiers/test_s3_emulator_conformance\.py.*\[((?!aws)[\w-]+-http|aws-https)-sdk"
    r"|tests/tiers/test_s3_emulator_hostile\.py.*[\[-]sdk[]-]"
    r"|tests/tiers/test_s3_conformance\.py::TestSeaweedFSBySdk"
    r"|tests/tiers/test_operations_stalls\.py.*real_exchange.*-sdk\]"
    r"|tests/tiers/test_fsspec_conformance\.py::TestFsspecWebdav"
    r"|tests/flows/test_memory\.py"
    r"|tests/demo/test_trainer\.py::test_(a_process_killed_in_mid_update|a_signal_publishes)"
    r"|tests/release/test_prepare_release\.py::test_the_whole_way_with_real"
    r"|tests/release/test_weights_writing\.py.*own_loader.*\[(moe|custom|llama)\]"
    r"|tests/generation/test_validate_torch\.py::test_(a_malicious_pickle.*\[(legacy|bare)|the_keys_that_have_to_be_there)"
    r"|tests/generation/test_validate_torch\.py::test_a_payload_that_is_no_restart_state_is_quarantined\[state[124]"
    r"|tests/generation/test_validate_torch\.py::test_what_is_no_payload_is_quarantined\[content[13]"
    r"|tests/release/test_verify_release_models\.py.*every_kind_of_release_passes_every_check\[(moe|llama|custom)\]"
    r"|tests/release/test_prepare_release\.py::test_the_tree_holds_what_was_described_and_nothing_else\[(moe|custom)"
    r"|tests/release/test_(scan_hostile|release_hostile|publish_hub_faults|publish_token|verify_release_sandbox)\.py"
    r"|tests/release/test_(auth_fields|weights_reading|scan_secrets|prepare_refusals|publish_killed)\.py"
    r"|tests/release/test_release_canaries\.py.*\[(moe|adapter|llama)\]"
    r"|tests/release/test_release_end_to_end\.py.*\[(moe|llama|adapter|custom)\]"
    r"|tests/release/test_prepare_release\.py::test_two_prepares_on_two_days"
    r"|tests/release/test_prepare_release\.py::test_the_(tree_holds.*\[adapter|tensors_are_those.*\[(custom|moe)|canaries)"
    r"|tests/release/test_prepare_release\.py::test_canaries_in_all"
    r"|tests/release/test_weights_writing\.py::test_(memory_is_that_of_a_shard|the_hubs_own_loader)"
    r"|tests/release/test_verify_release_structure\.py::test_a_custom_release"
    r"|tests/release/test_release_canaries\.py.*\[custom\]"
    r"|tests/release/test_(publish_fields|scan_identities|scan_configs|scan_files|verify_release_models)\.py"
    r"|tests/flows/test_copy_large\.py"
    r"|tests/flows/test_tier_kinds\.py.*webdav"
    r"|tests/cases/test_c(69_c70_c77|59_c64)\w*\.py.*(webdav|s3fs)"
    r"|tests/tiers/test_volume_direct\.py::TestKilled::test_where_nothing_was\[disk-(complete|create)"
    r"|tests/tiers/test_volume_direct\.py::TestRaces::test_creators_beside_debris"
    r"|tests/generation/test_crashes\.py.*killed_at_any_step.*\[sealed\]"
    r"|tests/generation/test_validate_torch\.py::test_(a_whole_payload|publishing_a_broken|every_torch_file)"
    r"|tests/generation/test_validate_torch\.py::test_what_is_no_payload_is_quarantined\[truncated"
    r"|tests/durability/test_power_cuts\.py::test_the_record_is_what_lies"
    r"|tests/cost/test_html\.py::test_(it_opens_offline.*\[r7b|it_is_the_same_bytes)"
    r"|tests/demo/test_trainer\.py::test_resume_equals_uninterrupted"
    r"|tests/restore/test_hostile\.py::test_c76_more_than_a_million"
    r"|tests/tiers/test_fsspec_truth\.py::TestS3"
    r"|tests/tiers/test_operations_cases\.py::TestC60OneWriteASecond::test_it_is_spaced"
    r"|tests/chaos/test_chaos\.py.*does_it_wrong_fails\[forgetful\]"
    r"|tests/generation/test_validate_torch\.py::test_a_payload_that_is_no_restart_state_is_quarantined\[state[03]"
    r"|tests/daemon/test_process\.py.*(polling only|deferred-15|sealed-15)"
    r"|tests/release/test_release_checklist\.py::test_bf16_to_fp16_overflow"
    r"|tests/cost/test_report\.py::test_a_page_is_the_html"
    r"|tests/costing/test_requests_log\.py::test_every_length_and_hint"
    r"|tests/integrations/test_torch\.py.*(bit_equal_after_a_restore\[sync\]|a_truncated_payload)"
    r"|tests/cases/test_c84_c85\w*\.py::test_c85_what_a_killed_save_left"
    r"|tests/scrub/test_scrub_places\.py::test_on_other_stores_too\[s3\]"
    r"|tests/cli/test_bad_tier\.py::test_(wrong_credentials|a_missing_bucket)"
    r"|tests/tiers/test_volume_durability\.py.*killed_anywhere\[create\]"
    r"|tests/tiers/test_hub_tier_flows\.py::test_a_killed_process_resumes"
    r"|tests/tiers/test_(provider_headers|fsspec_writes)\.py"
    r"|tests/tiers/test_volume_direct\.py::TestFailures::test_at_every_step"
    r"|tests/cli/test_bad_history\.py::test_a_hostile_manifest"
)

FIRST = (
    "tests/crash/",
    "tests/release/test_release_end_to_end.py",
    "tests/tiers/test_volume_",
    "tests/tiers/test_fsspec_conformance.py",
    "tests/tiers/test_s3_conformance.py",
    "tests/cli/test_secrets.py",
    "tests/flows/",
    "tests/demo/",
)
"""What takes longest, longest first."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the long form, and put what takes longest in front; the order within a file stays."""
    for item in items:
        if LONG.search(item.nodeid):
            item.add_marker(pytest.mark.long)
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    return next((place for place, start in enumerate(FIRST) if item.nodeid.startswith(start)), len(FIRST))
