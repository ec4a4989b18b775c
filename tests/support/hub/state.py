"""What the server knows, and who may see and change it."""

import hashlib
import hmac
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from http import HTTPStatus
from urllib.parse import urlencode

from support.hub.accounts import Accounts, Token, Visibility
from support.hub.refusals import Answer, ErrorCode, RefusedError, bad_request, forbidden
from support.hub.repos import Gate, Repo, RepoKind

_SIGNING_KEY = b"loopback only"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Sizes in bytes and counts; small ones bring a rule into a test's reach."""

    page: int = 1_000
    expanded_page: int = 50
    paths: int = 1_000
    folder: int = 10_000
    multipart_above: int = 5 * 1024**3
    part: int = 20 * 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request whose body has arrived and whose token is valid or absent."""

    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: bytes
    args: Mapping[str, str]
    token: Token | None

    @property
    def kind(self) -> RepoKind:
        """The kind of repo that the path names."""
        return RepoKind(self.args.get("kind", "models").removesuffix("s"))

    @property
    def author(self) -> str:
        """The user whose commit it becomes."""
        return "system" if self.token is None else self.token.user

    def flag(self, name: str) -> bool:
        """Return a boolean of the query."""
        return self.query.get(name, ["false"])[0].lower() in {"true", "1"}

    def json(self) -> Mapping[str, object]:
        """Return the body, which has to be an object."""
        try:
            found = json.loads(self.body)
        except ValueError as error:
            raise bad_request("The body is not JSON") from error
        if not isinstance(found, dict):
            raise bad_request("The body is not a JSON object")
        return found


Handler = Callable[["HubState", Call], Answer]


class Access(Enum):
    """What a request needs of a repo."""

    SEE = auto()
    FILES = auto()
    CHANGE = auto()


class Repos(Mapping[str, Repo]):
    """All repos by ``org/name`` or ``datasets/org/name``; the short form has to be unambiguous."""

    def __init__(self) -> None:
        self._repos: dict[tuple[RepoKind, str], Repo] = {}

    def __getitem__(self, name: str) -> Repo:
        found = [repo for repo in self._repos.values() if name in {repo.id, repo.kind.prefix + repo.id}]
        if len(found) != 1:
            raise KeyError(f"{name} names {len(found)} repos of {sorted(self)}")
        return found[0]

    def __iter__(self) -> Iterator[str]:
        return iter([repo.kind.prefix + repo.id for repo in self._repos.values()])

    def __len__(self) -> int:
        return len(self._repos)

    def find(self, kind: RepoKind, repo_id: str) -> Repo | None:
        """Return a repo, if there is one."""
        return self._repos.get((kind, repo_id))

    def add(self, repo: Repo) -> None:
        """Keep a new repo."""
        self._repos[repo.kind, repo.id] = repo

    def remove(self, repo: Repo) -> None:
        """Forget a repo and all that it holds."""
        del self._repos[repo.kind, repo.id]


@dataclass(slots=True, kw_only=True)
class HubState:
    """Everything behind the two origins.  One lock outside guards it."""

    limits: Limits
    hub_url: str = ""
    storage_url: str = ""
    accounts: Accounts = field(default_factory=Accounts)
    repos: Repos = field(default_factory=Repos)
    parts: dict[str, dict[int, bytes]] = field(default_factory=dict)
    changes: int = 0

    def tick(self) -> int:
        """Return the number of the next change."""
        self.changes += 1
        return self.changes

    def repo(self, call: Call, access: Access) -> Repo:
        """Return the repo that a request names, if it may have it."""
        return self.named_repo(call.token, call.kind, call.args["id"], access)

    def named_repo(self, token: Token | None, kind: RepoKind, repo_id: str, access: Access) -> Repo:
        """Return a repo, or refuse: hidden ones do not exist, gated ones exist but keep their files."""
        repo = self.repos.find(kind, repo_id)
        if repo is None or not (repo.visibility is Visibility.PUBLIC or self._is_member(token, repo)):
            raise _hidden(token)
        if access is Access.FILES and not self._passes_gate(token, repo):
            raise _gated(token, repo)
        if access is Access.CHANGE and not self.accounts.may_write(token, repo.namespace):
            raise _not_allowed(token, repo)
        return repo

    def private_use(self, namespace: str) -> int:
        """Return the bytes of LFS objects in all private repos of a namespace."""
        repos = [self.repos[name] for name in self.repos]
        mine = [repo for repo in repos if repo.namespace == namespace and repo.visibility is Visibility.PRIVATE]
        return sum(repo.used_storage for repo in mine)

    def sign(self, method: str, origin: str, path: str, **terms: int) -> str:
        """Return a URL that needs no token for this request."""
        query = {name: str(value) for name, value in terms.items()}
        return f"{origin}{path}?{urlencode({**query, 'signature': _signature(method, path, query)})}"

    def _is_member(self, token: Token | None, repo: Repo) -> bool:
        return self.accounts.may_read(token, repo.namespace)

    def _passes_gate(self, token: Token | None, repo: Repo) -> bool:
        if repo.gated is Gate.OPEN or self._is_member(token, repo):
            return True
        return token is not None and token.user in repo.granted


def signed_terms(call: Call) -> dict[str, int]:
    """Return what a signed URL was made for, or refuse as the storage does."""
    if "authorization" in call.headers:
        raise bad_request("Only one auth mechanism allowed: the signature of this URL, or an Authorization header")
    query = {name: values[0] for name, values in call.query.items()}
    method = "GET" if call.method == "HEAD" else call.method
    if query.pop("signature", "") != _signature(method, call.path, query):
        raise forbidden("SignatureDoesNotMatch")
    return {name: int(value) for name, value in query.items()}


def answer_json(data: object, *, status: int = HTTPStatus.OK, headers: Mapping[str, str] | None = None) -> Answer:
    """Answer with JSON."""
    return Answer(
        status=status,
        headers={"Content-Type": "application/json; charset=utf-8", **(headers or {})},
        body=json.dumps(data).encode(),
    )


def _signature(method: str, path: str, query: Mapping[str, str]) -> str:
    text = f"{method} {path} {sorted(query.items())}"
    return hmac.new(_SIGNING_KEY, text.encode(), hashlib.sha256).hexdigest()


def _hidden(token: Token | None) -> RefusedError:
    # The Hub leaves the code out for anonymous clients; the library then goes by the URL, if that is https.
    # This server speaks http, so it sends the code always, for the library to raise what it would raise there.
    status = HTTPStatus.UNAUTHORIZED if token is None else HTTPStatus.NOT_FOUND
    return RefusedError(status, "Repository not found", code=ErrorCode.REPO_NOT_FOUND)


def _gated(token: Token | None, repo: Repo) -> RefusedError:
    if token is None:
        message = f"Access to {repo.kind} {repo.id} is restricted. You must be authenticated to access it."
        return RefusedError(HTTPStatus.UNAUTHORIZED, message, code=ErrorCode.GATED_REPO)
    message = f"Access to {repo.kind} {repo.id} is restricted and you are not in the authorized list."
    return RefusedError(HTTPStatus.FORBIDDEN, message, code=ErrorCode.GATED_REPO)


def _not_allowed(token: Token | None, repo: Repo) -> RefusedError:
    if token is None:
        return RefusedError(HTTPStatus.UNAUTHORIZED, "Invalid username or password.")
    return forbidden(f"You don't have the required permissions to change {repo.kind} {repo.id}")
