"""What failures of an object store mean: whether it is the user's to mend, and how."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

from obstore.exceptions import (
    BaseError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
)

from penstock.errors import ConnectionFailedError, StoreFailedError

#: what the text of an error has, and what the user can do; the first that fits
_CAUSES = (
    (
        r"NoSuchBucket|ContainerNotFound|bucket does not exist",
        "the bucket does not exist; create it, or name another one",
    ),
    (
        r"SignatureDoesNotMatch|InvalidAccessKeyId|AuthenticationFailed|InvalidAuthenticationInfo|ExpiredToken|InvalidToken|401",
        "the credentials are wrong or expired; set {credentials}",
    ),
    (
        r"PermanentRedirect|TemporaryRedirect|AuthorizationHeaderMalformed|301 Moved|non-compliant redirect|redirect",
        "the bucket is in another region; set AWS_REGION to its region",
    ),
    (
        r"169\.254\.169\.254|latest/api/token|latest/meta-data|metadata/identity|computeMetadata",
        "no credentials were found; set {credentials}",
    ),
    (
        r"AccessDenied|Access Denied|403|AuthorizationPermissionMismatch|AuthorizationFailure",
        "permission denied; allow {rights} objects below this address",
    ),
    (
        r"NotImplemented|NotSupported|not implemented|501",
        "the store lacks conditional writes (put if absent), which Penstock needs; use another store",
    ),
)
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
        _refuse(error, address, rights, _CAUSES[:1])
        raise FileNotFoundError(errno.ENOENT, "no such file", address) from None
    except NotSupportedError as error:
        raise ConnectionFailedError(f"{address}: {_CAUSES[-1][1]}") from error
    except (PermissionDeniedError, UnauthenticatedError) as error:
        _refuse(error, address, rights, _CAUSES)
        raise ConnectionFailedError(f"{address}: permission denied: {short(error)}") from error
    except BaseError as error:
        _refuse(error, address, rights, _CAUSES)
        raise StoreFailedError(errno.EIO, short(error), address) from error


def _refuse(error: Exception, address: str, rights: str, causes: tuple[tuple[str, str], ...]) -> None:
    scheme = address.partition("://")[0]
    for pattern, remedy in causes:
        if re.search(pattern, str(error)):
            told = remedy.format(rights=rights, credentials=_CREDENTIALS.get(scheme, "them"))
            raise ConnectionFailedError(f"{address}: {told}") from error


def short(error: Exception) -> str:
    """Return the first lines of an error's text: obstore appends its whole structure."""
    told = " ".join(str(error).partition("\n\nDebug source")[0].split())
    return told if len(told) <= _MOST_CHARACTERS else f"{told[:_MOST_CHARACTERS]}..."
