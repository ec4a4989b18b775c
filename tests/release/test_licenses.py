"""License ids: those of the Hub and of SPDX, spelled as the Hub wants, and what base models ask for."""

import pytest

from replicate.errors import ConfigInvalid
from replicate.release.description import LicenseChoice
from replicate.release.licenses import (
    BINDING,
    HUB_LICENSES,
    CardLicense,
    card_license,
    check_license,
    derivative_faults,
    license_of_base,
)


@pytest.mark.parametrize("license_id", sorted(HUB_LICENSES - {"other", "unknown"}))
def test_every_id_of_the_hub_is_taken(license_id: str) -> None:
    choice = LicenseChoice(id=license_id)
    check_license(choice)
    assert card_license(choice) == CardLicense(id=license_id)


@pytest.mark.parametrize(
    ("license_id", "spdx"), [("0bsd", "0BSD"), ("gpl-2.0-or-later", "GPL-2.0-or-later"), ("python-2.0", "Python-2.0")]
)
def test_an_id_of_spdx_that_the_hub_has_not_goes_in_as_other(license_id: str, spdx: str) -> None:
    choice = LicenseChoice(id=license_id)
    check_license(choice)
    shown = card_license(choice)
    assert shown == CardLicense(id="other", name=license_id, link=f"https://spdx.org/licenses/{spdx}.html")


@pytest.mark.parametrize(
    ("license_id", "hint"),
    [
        ("MIT", "write 'mit'"),
        ("Apache-2.0", "write 'apache-2.0'"),
        ("apache2", "did you mean 'apache-2.0'"),
        ("llama3.7", "'llama3.1'"),
        ("cc-by-nc", "'cc-by-nc-"),
        ("zzzzzz", "the Hub's list"),
    ],
)
def test_an_unknown_id_is_named_with_what_is_near(license_id: str, hint: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"^license\.id: ") as refused:
        check_license(LicenseChoice(id=license_id))
    assert hint in refused.value.hint
    assert repr(license_id) in refused.value.message


@pytest.mark.parametrize(
    "license_id", ["unknown", "mit OR apache-2.0", "389-exception", "licenseref-scancode-4suite-1.1", " mit", "../mit"]
)
def test_what_is_no_license(license_id: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"^license\.id: "):
        check_license(LicenseChoice(id=license_id))


@pytest.mark.parametrize(
    ("choice", "field"),
    [
        ({"id": "other"}, "license.name"),
        ({"id": "other", "name": "acme-1.0"}, "license.link"),
        ({"id": "other", "name": " ", "link": "LICENSE"}, "license.name"),
        ({"id": "other", "name": "acme-1.0", "link": "/etc/license"}, "license.link"),
        ({"id": "other", "name": "acme-1.0", "link": "http://acme.io/l"}, "license.link"),
        ({"id": "mit", "name": "mine"}, "license.name"),
        ({"id": "mit", "link": "https://acme.io/l"}, "license.link"),
    ],
)
def test_name_and_link_belong_to_other(choice: dict[str, str], field: str) -> None:
    with pytest.raises(ConfigInvalid, match=f"^{field}: ") as refused:
        check_license(LicenseChoice.model_validate(choice))
    assert refused.value.hint


@pytest.mark.parametrize("link", ["LICENSE", "https://acme.io/license"])
def test_other_with_name_and_link(link: str) -> None:
    choice = LicenseChoice(id="other", name="acme-1.0", link=link)
    check_license(choice)
    assert card_license(choice) == CardLicense(id="other", name="acme-1.0", link=link)


def test_every_binding_accepts_ids_that_exist() -> None:
    for license_id, binding in BINDING.items():
        assert {license_id, *binding.accepts} <= HUB_LICENSES


@pytest.mark.parametrize(
    ("base_license", "choice", "name", "faults"),
    [
        ("apache-2.0", LicenseChoice(id="mit"), "tiny", 0),
        ("llama3.1", LicenseChoice(id="llama3.1"), "Llama-3.1-tiny", 0),
        ("llama3.1", LicenseChoice(id="other", name="x", link="LICENSE"), "llama-tiny", 0),
        ("llama3.1", LicenseChoice(id="mit"), "Llama-3.1-tiny", 1),
        ("llama3.1", LicenseChoice(id="llama3.1"), "tiny", 1),
        ("llama3", LicenseChoice(id="mit"), "Llama-tiny", 2),
        ("llama2", LicenseChoice(id="llama2"), "tiny", 0),
        ("gemma", LicenseChoice(id="apache-2.0"), "tiny", 1),
        ("Gemma", LicenseChoice(id="gemma"), "tiny", 0),
        ("cc-by-nc-nd-4.0", LicenseChoice(id="cc-by-nc-nd-4.0"), "tiny", 1),
    ],
)
def test_what_the_license_of_a_base_model_asks(
    base_license: str, choice: LicenseChoice, name: str, faults: int
) -> None:
    told = derivative_faults("acme/base", base_license, choice, name)
    assert len(told) == faults
    assert all("acme/base" in one and "read 2026-" in one for one in told)


@pytest.mark.parametrize(
    ("base", "license_id"),
    [
        ("meta-llama/Llama-2-7b-hf", "llama2"),
        ("meta-llama/Meta-Llama-3-8B", "llama3"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama3.1"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama3.3"),
        ("meta-llama/Llama-4-Scout-17B-16E", "llama4"),
        ("google/gemma-2-9b-it", "gemma"),
        ("google/gemma-4-9b", None),
        ("acme/llama-3.1", None),
    ],
)
def test_licenses_of_well_known_base_models(base: str, license_id: str | None) -> None:
    assert license_of_base(base) == license_id
