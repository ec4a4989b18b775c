"""An emulator of the Hugging Face Hub, strict where a publisher or a storage tier could go wrong.

It was built from the requests of huggingface_hub 2.4, and its tests drive it with that library::

    with HubServer() as hub:
        hub.add_org("acme", {"alice": OrgRole.WRITE})
        api = HfApi(endpoint=hub.url, token=hub.add_token("release", user="alice"))
        api.create_repo("acme/model", private=True)
        ...
        assert hub.repos["acme/model"].read("main", "config.json") == b"{}"
        assert [seen.operation for seen in hub.writes] == [Operation.CREATE_REPO, Operation.COMMIT]

Large files.  The library takes xet whenever hf_xet is installed, which it always is, and does not
ask the server: there is no answer to ``preupload`` that makes it use LFS.  The classic way (batch,
PUT, verify) is still there, and taken when ``HF_HUB_DISABLE_XET=1`` was set before the import
(``isolate_library`` sets what it becomes), or for a call in which a file is given as an open binary
file instead of a path or bytes.  This server has LFS, in one part or several, and answers 404 to
requests for xet tokens.  Buckets need xet on the client's side even to delete, and are left out.

Two origins.  As on the Hub, large files come from another origin than the API: the library follows
redirects within an origin but stops at another one, reads size and digest from the redirect itself,
and must not send its token there.  The storage origin refuses requests that bring one.

What is simplified: ids are those of git with a clock of one second a change; no pull requests, no
fine-grained tokens, no scans; a commit that changes nothing makes none and returns the head; the
code ``RepoNotFound`` is sent to anonymous clients too, since the library recognises the Hub's bare
401 only in https URLs.  Garbage is collected when a test says so: ``repo.collect_garbage()``.

Faults are those of ``support.faults``.  ``operation`` is an ``Operation`` or an HTTP method, ``key``
the path; a HEAD and a GET of a file are different operations, and a large file's bytes are a third::

    hub.inject(Fault(operation="commit", action=Action.DROP, when=When.AFTER))     # done, and unknown
    hub.inject(Fault(operation="lfs-get", action=Action.CORRUPT, when=When.MID_BODY))
    hub.inject(Fault(operation="lfs-batch", action=Action.STATUS, status=429, headers=rate_limited(2)))
"""

from collections.abc import Mapping

from support.faults import Action, Fault, Fired, When
from support.hub.accounts import OrgRole, TokenRole, Visibility
from support.hub.endpoints import Operation, Surface
from support.hub.exchange import INVALID_TOKEN
from support.hub.objects import Commit, LargeFile, RegularFile
from support.hub.recording import Seen
from support.hub.repos import Gate, Repo
from support.hub.server import HubServer
from support.hub.state import Limits

__all__ = [
    "INVALID_TOKEN",
    "Action",
    "Commit",
    "Fault",
    "Fired",
    "Gate",
    "HubServer",
    "LargeFile",
    "Limits",
    "Operation",
    "OrgRole",
    "RegularFile",
    "Repo",
    "Seen",
    "Surface",
    "TokenRole",
    "Visibility",
    "When",
    "rate_limited",
]


def rate_limited(seconds: int) -> Mapping[str, str]:
    """Return the headers of the Hub's 429: nothing is left of the quota for so many seconds."""
    return {"RateLimit": f'"api";r=0;t={seconds}', "RateLimit-Policy": '"fixed window";"api";q=1000;w=300'}
