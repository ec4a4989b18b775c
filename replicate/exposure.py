"""What somebody who has the bucket's keys could still do, computed from the configuration in force."""

from collections.abc import Sequence

from replicate.layout import RemoteRun
from replicate.restore.freshness import words
from replicate.signing.trust import LogTrust


def exposed(remote: RemoteRun, tiers: Sequence[str]) -> tuple[str, ...]:
    """Say it in short sentences, the worst first; nothing where there is no tier."""
    if not tiers:
        return ()
    trust = remote.trust
    known = [(one, anchor) for one in tiers if (anchor := remote.memory(one)) is not None]
    seen = ", ".join(f"slot {anchor.slot} of {tier}" for tier, anchor in known)
    return (
        *(_forging(trust, tiers) if trust.keyring else _forging_unsigned(seen)),
        _putting_back(seen, unknown=len(tiers) - len(known)),
        _hiding(trust),
        "delete or damage all that lies there: then only other tiers and the store have it",
        "read every checkpoint: ckptier does not encrypt them",
    )


def _forging_unsigned(seen: str) -> list[str]:
    line = "forge everything: nothing is signed, so entries, manifests and files that fit together are believed"
    return [f"{line}; this machine would notice a history that leaves out {seen}" if seen else line]


def _forging(trust: LogTrust, tiers: Sequence[str]) -> list[str]:
    lines = ["forge or change no generation: an entry counts only with a signature that the keyring trusts"]
    for one in tiers:
        until = trust.unsigned_until.get(one)
        if until is not None:
            lines.append(f"change nothing up to slot {until.slot} of {one}: it is unsigned, and pinned by its digest")
    lines.append(
        "put one tier's whole log and files in another tier's place, as a mirror does: what is there is genuine"
    )
    if trust.run_uid is None:
        lines.append("put back an older run of this name that the same keys signed: `run_uid` under [trust] forbids it")
    whose = "this machine's" if trust.signer is not None else "a writer's"
    return [*lines, f"with {whose} signing key as well: write anything in the slots that the key may sign"]


def _putting_back(seen: str, *, unknown: int) -> str:
    if not seen:
        return "put an old state back: this machine has seen no log yet, so it would not notice"
    if unknown:
        return f"put an old state back where this machine has seen no log yet; it remembers {seen}"
    return f"put no state back that is older than this machine remembers: {seen}"


def _hiding(trust: LogTrust) -> str:
    if trust.max_age is not None:
        return f"hide the newest generations, for {words(trust.max_age)} at most (max_age_seconds)"
    return "hide the newest generations; restore with --max-age, --min-sequence or --expect-anchor notices"
