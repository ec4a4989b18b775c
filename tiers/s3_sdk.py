"""The one place that imports boto3 and botocore, because of what has to be said first."""

import os

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
from botocore.parsers import ResponseParserError

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
    "exceptions",
]
