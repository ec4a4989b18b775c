"""The one place that imports boto3 and botocore, because of what has to be said first."""

import os
from functools import cache
from typing import Any

# Hazard: where the package awscrt happens to be installed, botocore signs through it, in callbacks of
# 4 KiB, 2.9 times slower.  It decides when it is first imported; this is its documented way out.
os.environ.setdefault("BOTO_DISABLE_CRT", "true")

from boto3.session import Session
from botocore import exceptions
from botocore.awsrequest import (
    AWSHTTPConnection,
    AWSHTTPConnectionPool,
    AWSHTTPSConnection,
    AWSHTTPSConnectionPool,
)
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.loaders import Loader
from botocore.parsers import ResponseParserError, create_parser
from botocore.session import get_session

__all__ = [
    "AWSHTTPConnection",
    "AWSHTTPConnectionPool",
    "AWSHTTPSConnection",
    "AWSHTTPSConnectionPool",
    "BotoCoreError",
    "ClientError",
    "Config",
    "ResponseParserError",
    "Session",
    "error_parser",
    "exceptions",
    "new_session",
]


@cache
def error_parser() -> Any:
    """Return the SDK's parser of what S3 says where it refuses."""
    return create_parser("rest-xml")


@cache
def _data() -> Loader:
    """One for the process: reading the SDK's own description of S3 takes most of what opening a client does."""
    return Loader()


def new_session() -> Session:
    """Return a session of its own, with credentials read anew, that shares only the SDK's data files."""
    core = get_session()
    core.register_component("data_loader", _data())
    session = Session(botocore_session=core)
    paths = _data().search_paths
    paths[:] = dict.fromkeys(paths)  # each session adds its own folder again
    return session
