"""Proving what is stored: the log, the manifests, the objects, and a share of their bytes.

A verdict is given per generation: *intact* where everything asked for was proved, *hurt*
where something was found wrong, *unknown* where a tier did not answer.  Nothing is changed.
"""

from replicate.verify.findings import Finding, GenerationVerdict, Hurt, Note, NoteKind, VerifyReport
from replicate.verify.manifests import attests, read_manifest
from replicate.verify.shares import Part, Share, Window, parse_part, parse_share
from replicate.verify.store import check_files, look_local, read_record, set_faults, verify_local, walk_folder
from replicate.verify.tiers import Looked, look, look_at, verify

__all__ = [
    "Finding",
    "GenerationVerdict",
    "Hurt",
    "Looked",
    "Note",
    "NoteKind",
    "Part",
    "Share",
    "VerifyReport",
    "Window",
    "attests",
    "check_files",
    "look",
    "look_at",
    "look_local",
    "parse_part",
    "parse_share",
    "read_manifest",
    "read_record",
    "set_faults",
    "verify",
    "verify_local",
    "walk_folder",
]
