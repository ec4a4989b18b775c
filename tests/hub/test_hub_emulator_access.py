"""The Hub emulator under the real library: who sees and may do what."""

from pathlib import Path

import pytest
from huggingface_hub import HfApi
from huggingface_hub.errors import (
    BadRequestError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    RepositoryNotFoundError,
)
from support.hub import INVALID_TOKEN, Gate, HubServer, Operation, OrgRole, Visibility
from support.hub.client import CLASSIC_LFS_WARNING

pytestmark = pytest.mark.filterwarnings(CLASSIC_LFS_WARNING)


def put(api: HfApi, repo_id: str) -> None:
    api.upload_file(path_or_fileobj=b"1", path_in_repo="a.txt", repo_id=repo_id)


def test_a_repo_is_public_unless_it_is_said_to_be_private(api: HfApi, hub: HubServer) -> None:
    api.create_repo("acme/open")
    api.create_repo("acme/closed", private=True)
    assert hub.repos["acme/open"].visibility is Visibility.PUBLIC
    assert hub.repos["acme/closed"].visibility is Visibility.PRIVATE
    assert api.repo_info("acme/closed").private


def test_an_organisation_may_have_another_default(api: HfApi, hub: HubServer) -> None:
    hub.add_org("shy", {"alice": OrgRole.WRITE}, default_visibility=Visibility.PRIVATE)
    api.create_repo("shy/model")
    assert hub.repos["shy/model"].visibility is Visibility.PRIVATE


def test_exist_ok_does_not_make_an_open_repo_private(api: HfApi, hub: HubServer) -> None:
    url = api.create_repo("acme/open")
    assert api.create_repo("acme/open", private=True, exist_ok=True) == url
    assert hub.repos["acme/open"].visibility is Visibility.PUBLIC
    with pytest.raises(HfHubHTTPError, match="already created") as refused:
        api.create_repo("acme/open", private=True)
    assert refused.value.response.status_code == 409


@pytest.mark.parametrize("name", ["a--b", "a..b", "a.git", "-a", "a" * 97])
def test_the_library_refuses_bad_names_itself(api: HfApi, hub: HubServer, name: str) -> None:
    with pytest.raises(HFValidationError):
        api.create_repo(f"acme/{name}")
    assert hub.requests == []


def test_a_name_that_only_the_server_refuses(api: HfApi, hub: HubServer) -> None:
    with pytest.raises(BadRequestError, match="Invalid repo name"):
        api.create_repo("acme/notes.ipynb")
    assert list(hub.repos) == []


def test_kinds_are_apart(api: HfApi, hub: HubServer) -> None:
    api.create_repo("acme/both")
    api.create_repo("acme/both", repo_type="dataset", private=True)
    assert list(hub.repos) == ["acme/both", "datasets/acme/both"]
    assert hub.repos["datasets/acme/both"].visibility is Visibility.PRIVATE
    with pytest.raises(KeyError, match="names 2 repos"):
        hub.repos["acme/both"]
    api.delete_repo("acme/both")
    assert list(hub.repos) == ["datasets/acme/both"]


def test_a_private_repo_does_not_exist_for_others(
    repo_id: str, member: HfApi, stranger: HfApi, anonymous: HfApi, hub: HubServer
) -> None:
    assert member.repo_info(repo_id).id == repo_id
    for outsider, status in ((stranger, 404), (anonymous, 401)):
        with pytest.raises(RepositoryNotFoundError) as refused:
            outsider.repo_info(repo_id)
        assert refused.value.response.status_code == status
        assert not isinstance(refused.value, GatedRepoError)
        with pytest.raises(RepositoryNotFoundError):
            outsider.hf_hub_download(repo_id, ".gitattributes")
    assert {seen.token for seen in hub.requests} == {"member", "stranger", None}
    assert hub.writes == []


def test_a_bad_token_is_told_from_a_hidden_repo(repo_id: str, hub: HubServer, api: HfApi) -> None:
    wrong = HfApi(endpoint=hub.url, token="hf_" + "x" * 34)
    with pytest.raises(HfHubHTTPError) as refused:
        wrong.repo_info(repo_id)
    assert refused.value.response.status_code == 401
    assert not isinstance(refused.value, RepositoryNotFoundError)
    with pytest.raises(HfHubHTTPError, match="Invalid user token"):
        wrong.whoami()
    assert {seen.token for seen in hub.requests} == {INVALID_TOKEN}
    hub.revoke_token("writer")
    with pytest.raises(HfHubHTTPError, match="Invalid user token"):
        api.whoami()


def test_whoami_tells_user_role_and_organisations(api: HfApi, reader: HfApi) -> None:
    told = api.whoami()
    assert (told["name"], told["auth"]["accessToken"]["role"]) == ("alice", "write")
    assert [(org["name"], org["roleInOrg"]) for org in told["orgs"]] == [("acme", "write")]
    assert reader.whoami()["auth"]["accessToken"]["role"] == "read"


def test_writing_needs_role_and_membership(
    repo_id: str, api: HfApi, reader: HfApi, member: HfApi, stranger: HfApi, hub: HubServer
) -> None:
    before = hub.repos[repo_id].head()
    for powerless in (reader, member):
        with pytest.raises(HfHubHTTPError, match="required permissions") as refused:
            put(powerless, repo_id)
        assert refused.value.response.status_code == 403
        with pytest.raises(HfHubHTTPError, match="required permissions"):
            powerless.update_repo_settings(repo_id, private=False)
        with pytest.raises(HfHubHTTPError, match="rights to create"):
            powerless.create_repo("acme/another")
        powerless.auth_check(repo_id)
        with pytest.raises(HfHubHTTPError, match="required permissions"):
            powerless.auth_check(repo_id, write=True)
    with pytest.raises(RepositoryNotFoundError):
        put(stranger, repo_id)
    api.auth_check(repo_id, write=True)
    assert hub.repos[repo_id].head() == before
    assert hub.repos[repo_id].visibility is Visibility.PRIVATE


def test_visibility_changes_by_itself(repo_id: str, api: HfApi, stranger: HfApi, hub: HubServer) -> None:
    api.update_repo_settings(repo_id, private=False)
    assert hub.repos[repo_id].visibility is Visibility.PUBLIC
    assert stranger.repo_info(repo_id).private is False
    api.update_repo_settings(repo_id, visibility="private")
    with pytest.raises(RepositoryNotFoundError):
        stranger.repo_info(repo_id)
    assert [seen.operation for seen in hub.writes] == [Operation.SETTINGS, Operation.SETTINGS]


def test_a_gate_shows_the_repo_and_keeps_its_files(
    repo_id: str, api: HfApi, member: HfApi, stranger: HfApi, anonymous: HfApi, hub: HubServer, tmp_path: Path
) -> None:
    put(api, repo_id)
    api.update_repo_settings(repo_id, private=False, gated="manual")
    assert hub.repos[repo_id].gated is Gate.MANUAL
    assert anonymous.repo_info(repo_id).gated == "manual"
    member.hf_hub_download(repo_id, "a.txt")
    for outsider, status in ((stranger, 403), (anonymous, 401)):
        with pytest.raises(GatedRepoError) as refused:
            outsider.auth_check(repo_id)
        assert refused.value.response.status_code == status
        with pytest.raises(GatedRepoError):
            outsider.hf_hub_download(repo_id, "a.txt", cache_dir=tmp_path / "empty")  # a cached file would be given
    hub.repos[repo_id].granted.add("mallory")
    stranger.auth_check(repo_id)
    api.update_repo_settings(repo_id, gated=False)
    assert hub.repos[repo_id].gated is Gate.OPEN
