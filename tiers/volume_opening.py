"""From a spec to a tier on a volume."""

from pathlib import Path

from tiers.opening import BadTierUrl, TierSpec
from tiers.protocol import Tier
from tiers.volume import VolumeTier
from tiers.volume_facts import VolumeMode
from tiers.volume_modal import BadHooks, ModalTier, hooks_from


def open_volume(spec: TierSpec, root: Path) -> Tier:
    """Return a tier on a volume in the configured mode; no request is made.

    BadTierUrl for options that mean nothing, Unsupported where Modal's package is not
    installed.
    """
    mode = VolumeMode(spec.mode or VolumeMode.AUTO)
    if mode is not VolumeMode.MODAL and spec.options:
        raise BadTierUrl(f"tier {spec.name}: options mean nothing to file:// in mode {mode}", "take them out")
    tier = VolumeTier(spec.name, root, mode=mode)
    if mode is not VolumeMode.MODAL:
        return tier
    try:
        return ModalTier(tier, hooks_from(spec.options, spec.name))
    except BadHooks as error:
        hint = 'options = { volume = "NAME" }, or { commit = "module:function", reload = "module:function" }'
        raise BadTierUrl(f"tier {spec.name}: {error}", hint) from error
