"""The error classes and codes of what fsspec's filesystems are built on, as data.

A class stands for those derived from it.  Names are those of the package and the class,
since the packages may not be installed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tiers.errors import (
    AccessDenied,
    CapacityExceeded,
    IntegrityError,
    ObjectExists,
    ObjectNotFound,
    TierError,
    TierUnavailable,
    Unsupported,
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Which error a failure becomes, and one line for the operator."""

    error: type[TierError]
    hint: str = ""


def _all(package: str, names: str, error: type[TierError], hint: str = "") -> dict[str, Verdict]:
    return dict.fromkeys((f"{package}.{name}" for name in names.split()), Verdict(error, hint))


_NETWORK = "the store could not be reached: check the network and the URL of this tier"
_SETTINGS = "check the URL, options and region of this tier"
_CREDENTIALS = "check the credentials that the implementation finds, and what they may do"
_TLS = "the certificate was not accepted: check the URL, the CA bundle and this machine's clock"
_PROXY = "the HTTP proxy did not answer: check HTTPS_PROXY and NO_PROXY"
_BUCKET = "the bucket does not exist at this endpoint: check its name and the endpoint"
_BUG = "the request was refused before it was sent: please report this"
_HOST_KEY = (
    "the server's host key is not the one in known_hosts: somebody may be in between; compare it with its owner's"
)
_NEW_HOST = "connect once with ssh, compare the host key with its owner's, and it is written to known_hosts"
_NO_LINKS = (
    'this server makes no hard links, without which two writers cannot be kept apart: say profile = "sftp-basic", '
    "and, where only one writer ever exists, accept_advisory = true"
)
_KEY_FILE = "a key file or known_hosts cannot be read: check key_filename and known_hosts of this tier"
_SSH_LOGIN = "check user name, SSH agent and key_filename of this tier"

CLASSES: Mapping[str, Verdict] = MappingProxyType(
    {
        # ours
        "tiers.WrongSize": Verdict(IntegrityError, "the store kept another number of bytes; it is sent again"),
        "tiers.UnknownHostKey": Verdict(AccessDenied, _NEW_HOST),
        "tiers.NoHardLinks": Verdict(Unsupported, _NO_LINKS),
        "tiers.BadAnswer": Verdict(TierUnavailable, "the store is misbehaving: check the URL of this tier"),
        "tiers.BadOptions": Verdict(
            Unsupported, "the filesystem does not take these options: see options of this tier"
        ),
        "netrc.NetrcParseError": Verdict(AccessDenied, "~/.netrc cannot be read: check its syntax and permissions"),
        # fsspec
        "fsspec.FSTimeoutError": Verdict(TierUnavailable, _NETWORK),
        "fsspec.FSSpecCoroutineCancel": Verdict(TierUnavailable, _NETWORK),
        "fsspec.BlocksizeMismatchError": Verdict(Unsupported, _BUG),
        "s3fs.FileExpired": Verdict(IntegrityError, "the object was replaced while it was read"),
        # SSH
        **_all("paramiko", "BadHostKeyException", AccessDenied, _HOST_KEY),
        **_all("paramiko", "AuthenticationException", AccessDenied, _SSH_LOGIN),
        **_all("paramiko", "CouldNotCanonicalize ConfigParseError", AccessDenied, _SETTINGS),
        **_all("paramiko", "IncompatiblePeer", Unsupported, "this server speaks no cipher that this client accepts"),
        **_all("paramiko", "SSHException ProxyCommandFailure NeedRekeyException", TierUnavailable, _NETWORK),
        **_all("paramiko", "UnknownKeyType BERException InvalidHostKey", AccessDenied, _KEY_FILE),
        **_all("paramiko", "NoValidConnectionsError SFTPError", TierUnavailable, _NETWORK),
        # Python's own network modules
        **_all("socket", "gaierror herror", TierUnavailable, "the host name is not known: check the URL of this tier"),
        **_all("ssl", "SSLError", TierUnavailable, _TLS),
        **_all("http", "HTTPException", TierUnavailable, _NETWORK),
        **_all("urllib", "URLError", TierUnavailable, _NETWORK),
        # what s3fs, gcsfs and adlfs speak through: aiohttp
        **_all("aiohttp", "InvalidURL", AccessDenied, _SETTINGS),
        **_all(
            "aiohttp",
            "ClientConnectorCertificateError ServerFingerprintMismatch ClientConnectorSSLError",
            AccessDenied,
            _TLS,
        ),
        **_all("aiohttp", "ClientHttpProxyError ClientProxyConnectionError", TierUnavailable, _PROXY),
        **_all("aiohttp", "ClientError HttpProcessingError WebSocketError EofStream", TierUnavailable, _NETWORK),
        **_all("aiohttp", "WSHandshakeError TooManyMembersError", TierUnavailable, _NETWORK),
        **_all("aiohttp", "LookupError", Unsupported, _BUG),
        # what webdav4 speaks through: httpx
        **_all("httpx", "UnsupportedProtocol InvalidURL CookieConflict", AccessDenied, _SETTINGS),
        **_all("httpx", "ProxyError", TierUnavailable, _PROXY),
        **_all("httpx", "HTTPError StreamError", TierUnavailable, _NETWORK),
        **_all("httpcore", "UnsupportedProtocol", AccessDenied, _SETTINGS),
        **_all("httpcore", "NetworkError TimeoutException ProtocolError", TierUnavailable, _NETWORK),
        **_all("httpcore", "ConnectionNotAvailable ProxyError", TierUnavailable, _NETWORK),
        **_all("h11", "ProtocolError", TierUnavailable, _NETWORK),
        **_all("webdav4", "ResourceNotFound IsACollectionError IsAResourceError", ObjectNotFound),
        **_all("webdav4", "ResourceAlreadyExists", ObjectExists, "read the key to learn who created it"),
        **_all("webdav4", "ForbiddenOperation", AccessDenied, _CREDENTIALS),
        **_all("webdav4", "InsufficientStorage", CapacityExceeded, "make room on the store or prune"),
        **_all("webdav4", "ResourceConflict ResourceLocked BadGatewayError", TierUnavailable),
        **_all("webdav4", "MultiStatusError MultiStatusResponseError", TierUnavailable),
        **_all("webdav4", "ClientError", TierUnavailable, _SETTINGS),
        # what s3fs stands on: botocore, whose statuses and codes come first
        **_all("botocore", "SSLError", TierUnavailable, _TLS),
        **_all("botocore", "ProxyConnectionError", TierUnavailable, _PROXY),
        **_all("botocore", "ConnectionError HTTPClientError", TierUnavailable, _NETWORK),
        **_all("botocore", "IncompleteReadError ResponseParserError", TierUnavailable, _NETWORK),
        **_all("botocore", "ResponseStreamingError ReadTimeoutError", TierUnavailable, _NETWORK),
        **_all("botocore", "ChecksumError FlexibleChecksumError", IntegrityError),
        **_all("botocore", "ParamValidationError UndefinedModelAttributeError", Unsupported, _BUG),
        **_all("botocore", "NoCredentialsError PartialCredentialsError", AccessDenied, _CREDENTIALS),
        **_all("botocore", "CredentialRetrievalError UnknownCredentialError", AccessDenied, _CREDENTIALS),
        **_all("botocore", "MetadataRetrievalError RefreshWithMFAUnsupportedError", AccessDenied, _CREDENTIALS),
        **_all("botocore", "NoAuthTokenError TokenRetrievalError SSOError LoginError", AccessDenied, _CREDENTIALS),
        **_all("botocore", "ProfileNotFound ConfigNotFound ConfigParseError", AccessDenied, _SETTINGS),
        **_all("botocore", "InvalidConfigError BaseEndpointResolverError", AccessDenied, _SETTINGS),
        **_all("botocore", "EndpointProviderError InvalidRegionError", AccessDenied, _SETTINGS),
        **_all("botocore", "BotoCoreError", AccessDenied, _SETTINGS),
        **_all("botocore", "ClientError", TierError, "the store refused this for a reason that is not known here"),
        **_all("aiobotocore", "AioBotocoreException", AccessDenied, _SETTINGS),
        # what gcsfs stands on: Google's libraries and requests
        **_all("gcsfs", "ChecksumError", IntegrityError, "what the store has is not what was sent; it is sent again"),
        **_all("gcsfs", "HttpError", TierError, "the store refused this for a reason that is not known here"),
        **_all("google", "TransportError", TierUnavailable, _NETWORK),
        **_all("google", "GoogleAuthError", AccessDenied, _CREDENTIALS),
        **_all("google", "RetryError", TierUnavailable, _NETWORK),
        **_all("google", "GoogleAPIError", TierError, "the store refused this for a reason that is not known here"),
        **_all("requests", "InvalidURL MissingSchema InvalidSchema", AccessDenied, _SETTINGS),
        **_all("requests", "ProxyError", TierUnavailable, _PROXY),
        **_all("requests", "RequestException", TierUnavailable, _NETWORK),
        # what adlfs stands on: Azure's libraries
        **_all("azure", "ResourceNotFoundError", ObjectNotFound),
        **_all("azure", "ResourceExistsError", ObjectExists, "read the key to learn who created it"),
        **_all("azure", "ResourceModifiedError", IntegrityError, "the object is not the one that was asked for"),
        **_all("azure", "ClientAuthenticationError", AccessDenied, _CREDENTIALS),
        **_all("azure", "AzureError", TierUnavailable, _NETWORK),
    }
)

S3_CODES: Mapping[str, Verdict] = MappingProxyType(
    {
        "NoSuchKey": Verdict(ObjectNotFound),
        "NoSuchBucket": Verdict(AccessDenied, _BUCKET),
        "InvalidBucketName": Verdict(AccessDenied, _BUCKET),
        "NoSuchUpload": Verdict(TierUnavailable, "the upload was ended from outside; it is sent again"),
        **dict.fromkeys(
            ("AccessDenied", "AllAccessDisabled", "InvalidAccessKeyId", "SignatureDoesNotMatch", "Unauthorized"),
            Verdict(AccessDenied, _CREDENTIALS),
        ),
        **dict.fromkeys(
            ("ExpiredToken", "InvalidToken", "TokenRefreshRequired", "InvalidSecurity", "InvalidClientTokenId"),
            Verdict(AccessDenied, _CREDENTIALS),
        ),
        **dict.fromkeys(
            ("PermanentRedirect", "TemporaryRedirect", "AuthorizationHeaderMalformed"),
            Verdict(AccessDenied, "the bucket lies in another region: set region of this tier"),
        ),
        "RequestTimeTooSkewed": Verdict(AccessDenied, "this machine's clock is off: synchronise it"),
        **dict.fromkeys(
            ("SlowDown", "ServiceUnavailable", "TooManyRequests", "Throttling", "RequestLimitExceeded"),
            Verdict(TierUnavailable, "the store asks to slow down"),
        ),
        **dict.fromkeys(
            ("InternalError", "RequestTimeout", "IncompleteBody", "OperationAborted", "ConditionalRequestConflict"),
            Verdict(TierUnavailable),
        ),
        **dict.fromkeys(
            ("BadDigest", "InvalidDigest", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch"),
            Verdict(IntegrityError, "what arrived is not what was sent; it is sent again"),
        ),
        **dict.fromkeys(
            ("QuotaExceeded", "InsufficientStorage", "StorageFull", "XMinioStorageFull", "EntityTooLarge"),
            Verdict(CapacityExceeded, "make room on the store or prune"),
        ),
        **dict.fromkeys(
            ("NotImplemented", "MethodNotAllowed", "KeyTooLongError", "InvalidArgument", "InvalidRequest"),
            Verdict(Unsupported, _SETTINGS),
        ),
    }
)
"""Codes that say more than their status does."""
