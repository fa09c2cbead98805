"""One Secret of the Kubernetes cluster that this pod runs in, read and added to with the pod's own account."""

import base64
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from turnout.errors import Misconfigured, Unavailable

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
API = "https://kubernetes.default.svc"
_MERGE = {"content-type": "application/merge-patch+json"}


class ClusterSecret:
    """`account` is the folder that Kubernetes mounts for the pod's account."""

    def __init__(self, name: str, api: str = API, account: Path = ACCOUNT) -> None:
        try:
            token, namespace = (account / "token").read_text(), (account / "namespace").read_text()
            authority = account / "ca.crt"
            tls = ssl.create_default_context(cafile=str(authority)) if authority.exists() else True
        except (OSError, ssl.SSLError) as err:
            raise Misconfigured(f"this is no pod with an account: {err}") from err
        self._path = f"/api/v1/namespaces/{namespace}/secrets/{name}"
        self._client = httpx.AsyncClient(
            base_url=api,
            verify=tls,
            headers={"authorization": f"Bearer {token}"},
            timeout=10.0,
            trust_env=False,
        )

    async def aclose(self) -> None:
        await self._client.aclose()

    async def add_missing(self, values: Mapping[str, str]) -> dict[str, str]:
        """Adds those that are not there, and returns all that are. Another writer between the two is refused by the server."""
        found = await self._call("GET")
        data: Mapping[str, str] = found.get("data") or {}
        there = {key: base64.b64decode(value).decode() for key, value in data.items()}
        missing = {key: value for key, value in values.items() if not there.get(key)}
        if missing:
            version = found["metadata"]["resourceVersion"]
            patch = {"metadata": {"resourceVersion": version}, "stringData": missing}
            await self._call("PATCH", patch)
        return {**there, **missing}

    async def _call(self, method: str, body: Any = None) -> Any:
        try:
            answer = await self._client.request(
                method, self._path, json=body, headers=_MERGE if body else None
            )
            answer.raise_for_status()
            return answer.json()
        except (httpx.HTTPError, ValueError) as err:
            raise Unavailable(f"the Secret could not be reached: {err}") from err
