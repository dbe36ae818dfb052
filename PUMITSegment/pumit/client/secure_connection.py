"""Why a secure connection (TLS) to a server fails, as one sentence for the user."""

from __future__ import annotations

import ssl
from urllib.parse import urlsplit

# Results of OpenSSL's verification: `X509_V_ERR_...` in its `x509_vfy.h`.
NOT_YET_VALID = 9
EXPIRED = 10
_SIGNED_BY_ITSELF = 18
_OTHER_NAME = (62, 64)  # of a host, or an IP address
# Reasons for an answer that is not TLS, by version of OpenSSL.
_NOT_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL")
# Reasons for a file of certificates that holds none.
_NO_CERTIFICATE = ("NO_CERTIFICATE_OR_CRL_FOUND", "NO_START_LINE")

NO_CERTIFICATE_FILE = (
    "The certificate file that was given to check the server with cannot be read as one; choose "
    "the PEM file from the server's administrator."
)


def secure_connection_failure(url: str, error: BaseException) -> str:
    """Return the sentence for the failure of a secure connection.

    Args:
        error: The error of the HTTP library, with that of `ssl` among its causes.
    """
    cause = _cause(error)
    reason = getattr(cause, "reason", None) or ""
    if reason in _NO_CERTIFICATE:
        return NO_CERTIFICATE_FILE
    if reason in _NOT_TLS:
        return (
            f"{url} answers without https, so that a scan would not be encrypted; ask its "
            "administrator for the https address, or write http:// and allow an unencrypted "
            "connection."
        )
    if not isinstance(cause, ssl.SSLCertVerificationError):
        how = f" ({reason.replace('_', ' ').lower()})" if reason else ""
        return (
            f"A secure connection to {url} fails{how}; ask its administrator which versions of "
            "TLS it accepts, and check any proxy in between."
        )
    return _certificate_failure(url, getattr(cause, "verify_code", _OTHER_NAME[0]))


def _certificate_failure(url: str, code: int) -> str:
    """Return the sentence for a certificate that fails OpenSSL's verification with a code."""
    certificate = f"The certificate of {url}"
    if code == EXPIRED:
        return (
            f"{certificate} has expired; ask its administrator to renew it, unless the date of "
            "this computer is wrong."
        )
    if code == NOT_YET_VALID:
        return (
            f"{certificate} is not valid yet; check the date of this computer, or ask the "
            "server's administrator."
        )
    if code in _OTHER_NAME:
        return (
            f"{certificate} is for another name than {urlsplit(url).hostname}; use the name in "
            "the certificate as the address, or ask its administrator for one with this name."
        )
    if code == _SIGNED_BY_ITSELF:
        return (
            f"{certificate} is not trusted, since it is signed by itself; get the server's "
            "certificate file (PEM) from its administrator, and give it to check the server with."
        )
    return (
        f"{certificate} is not trusted, since its issuer is unknown here; get the issuer's "
        "certificate file (PEM) from the server's administrator, and give it to check the server "
        "with."
    )


def _cause(error: BaseException) -> BaseException | None:
    """Return the error of `ssl` that caused another error, or None."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    return cause
