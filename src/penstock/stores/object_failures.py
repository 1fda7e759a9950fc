"""What failures of an object store mean: whether it is the user's to mend, and how."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from obstore.exceptions import (
    BaseError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
)

from penstock.errors import ConnectionFailedError, StoreFailedError

#: codes of an answer, by the stores' own names and HTTP's numbers, and what the user can do; the first that fits
_NO_BUCKET = (
    {"NoSuchBucket", "ContainerNotFound"},
    "the bucket does not exist; create it, or name another one",
)
_NO_CONDITIONS = (
    {"NotImplemented", "NotSupported", "501"},
    "the store lacks conditional writes (put if absent), which Penstock needs; use another store",
)
_CAUSES = (
    _NO_BUCKET,
    (
        {
            "SignatureDoesNotMatch",
            "InvalidAccessKeyId",
            "AuthenticationFailed",
            "InvalidAuthenticationInfo",
            "ExpiredToken",
            "InvalidToken",
            "401",
        },
        "the credentials are wrong or expired; check {credentials}",
    ),
    (
        {"PermanentRedirect", "TemporaryRedirect", "AuthorizationHeaderMalformed", "301", "307"},
        "the bucket is in another region; set AWS_REGION to its region",
    ),
    (
        {"AccessDenied", "AuthorizationPermissionMismatch", "AuthorizationFailure", "403"},
        "permission denied; allow {rights} objects below this address",
    ),
    _NO_CONDITIONS,
)
#: where an error has such codes: the answer's document, its status, obstore's own words
_CODE = re.compile(r"<Code>(\w+)</Code>|\(code: (\w+)\)|status code: (\d{3})")
_REDIRECT = "redirect without LOCATION"
#: where a machine of a cloud is asked for credentials if none are set
_ASKED = re.compile(r"https?://[^/\s]+/(?:latest/|metadata/identity|computeMetadata)")
_SERVER = re.compile(r"https?://[^/\s)]+")
_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
_MOST_CHARACTERS = 300


@contextmanager
def failures(address: str, rights: str = "reading, writing, listing and deleting") -> Iterator[None]:
    """Turn what obstore raises into conditions of Penstock.

    Args:
        address: of the file or store.
        rights: what must be allowed, for the message.

    Raises:
        FileNotFoundError: no such file.
        ConnectionFailedError: a retry cannot help.
        StoreFailedError: the store failed.
    """
    try:
        yield
    except FileNotFoundError as error:
        # of a bucket as well
        _refuse(error, address, rights, [_NO_BUCKET])
        raise FileNotFoundError(errno.ENOENT, "no such file", address) from None
    except NotSupportedError as error:
        raise ConnectionFailedError(f"{address}: {_NO_CONDITIONS[1]}") from error
    except (PermissionDeniedError, UnauthenticatedError) as error:
        _refuse(error, address, rights, _CAUSES)
        raise ConnectionFailedError(f"{address}: permission denied: {short(error)}") from error
    except BaseError as error:
        _refuse(error, address, rights, _CAUSES)
        if "error sending request" in str(error):
            server = f" at {asked.group()}" if (asked := _SERVER.search(str(error))) else ""
            told = (
                f"the store does not answer; check that its server runs{server}, its endpoint (AWS_ENDPOINT_URL for S3) "
                "and the network"
            )
            raise StoreFailedError(errno.EIO, told, address) from error
        raise StoreFailedError(errno.EIO, short(error), address) from error


def _refuse(error: Exception, address: str, rights: str, causes: Iterable[tuple[set[str], str]]) -> None:
    told = str(error)
    codes = {code for found in _CODE.findall(told) for code in found}
    if _REDIRECT in told:
        codes.add("301")
    credentials = _CREDENTIALS.get(address.partition("://")[0], "them")
    if _ASKED.search(told):
        raise ConnectionFailedError(f"{address}: no credentials were found; set {credentials}") from error
    for known, remedy in causes:
        if codes & known:
            advice = remedy.format(rights=rights, credentials=credentials)
            raise ConnectionFailedError(f"{address}: {advice}") from error


def short(error: Exception) -> str:
    """Return the first lines of an error's text: obstore appends its whole structure."""
    told = " ".join(str(error).partition("\n\nDebug source")[0].split())
    return told if len(told) <= _MOST_CHARACTERS else f"{told[:_MOST_CHARACTERS]}..."
