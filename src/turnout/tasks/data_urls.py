"""Pictures inside of a request's text."""

import base64
import binascii

from turnout.errors import InvalidRequest

_BASE64 = ";base64"


def from_data_url(url: str, param: str) -> bytes:
    """The bytes of a `data:image/…;base64,…` URL."""
    head, comma, payload = url.partition(",")
    if not comma or not head.startswith("data:image/") or not head.endswith(_BASE64):
        raise InvalidRequest("A data URL must be 'data:image/…;base64,…'.", param, "invalid_value")
    try:
        return base64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError) as err:
        raise InvalidRequest("The data URL is not valid base64.", param, "invalid_value") from err
