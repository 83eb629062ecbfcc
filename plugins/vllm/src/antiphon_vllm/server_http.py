"""Asking a server over HTTP: tries again what may pass, and says clearly what did not.

Asking twice is safe: a request carries its seed, so the answer to it is the same.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from antiphon.errors import BackendError, InvalidParameter, ModelNotFound

_PASSING = frozenset({408, 429, 500, 502, 503, 504})  # states of a server, not faults of a request
_LONGEST_PAUSE = 30.0


class Server:
    """A client of one server, to be used in one event loop.

    Attributes:
        url: The server's address, without a path.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        timeout: float = 600.0,
        retries: int = 4,
        max_in_flight: int = 256,
    ) -> None:
        """Connect to nothing yet.

        Args:
            url: The address, with or without ``/v1``.
            api_key: Sent as a bearer token.
            timeout: Seconds that one request may take.
            retries: How often a request that failed is sent again, after 0.5, 1, 2, ... seconds.
            max_in_flight: How many requests may be under way at once; others wait.
        """
        try:
            import httpx
        except ImportError as error:
            raise BackendError(
                "Talking to a server needs httpx, which is not installed; run `pip install "
                "antiphon-vllm[server]`."
            ) from error
        address = httpx.URL(url if "://" in url else f"http://{url}")
        if address.scheme not in ("http", "https") or not address.host:
            raise InvalidParameter(
                f"{url!r} is no server's address; give one such as http://localhost:8000."
            )
        self.url = str(address).rstrip("/").removesuffix("/v1")
        self._retries, self._timeout = retries, timeout
        self._free = asyncio.Semaphore(max_in_flight)
        self._client = httpx.AsyncClient(
            base_url=self.url,
            headers={"Authorization": f"Bearer {api_key}"} if api_key else None,
            timeout=httpx.Timeout(timeout, connect=min(timeout, 10.0), pool=None),
            limits=httpx.Limits(max_connections=max_in_flight),
        )

    async def get(self, path: str) -> Any:
        """Return what is there."""
        return await self._ask("GET", path, None, "")

    async def post(self, path: str, body: dict[str, Any], what: str = "") -> Any:
        """Return the answer to ``body``; ``what`` names it in errors.

        Raises:
            InvalidParameter: The server refused the request; its own words are passed on.
            ModelNotFound: The server has no such model, or no such path.
            BackendError: It can't be reached, broke off, was too slow, or failed, every time.
        """
        return await self._ask("POST", path, body, what)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _ask(self, method: str, path: str, body: Any, what: str) -> Any:
        import httpx

        async with self._free:
            for attempt in range(self._retries + 1):
                try:
                    response = await self._client.request(method, path, json=body)
                    if response.status_code not in _PASSING:
                        return self._answer(response, what)
                    trouble = f"it answers {response.status_code} ({_message(response)})"
                    pause = _asked_pause(response)
                except httpx.TimeoutException as error:
                    # A slow server is not made faster by asking again.
                    if not isinstance(error, httpx.ConnectTimeout):
                        raise BackendError(
                            f"The server at {self.url} had not answered{what} after "
                            f"{self._timeout:g} seconds; give the backend a longer timeout or fewer "
                            "rows at once."
                        ) from error
                    trouble, pause = "it does not take the connection", None
                except httpx.ConnectError as error:
                    trouble, pause = f"it can't be reached ({error})", None
                except httpx.TransportError as error:
                    trouble, pause = (
                        f"it broke off in the middle ({error or type(error).__name__})",
                        None,
                    )
                if attempt < self._retries:
                    await asyncio.sleep(pause or min(0.5 * 2**attempt, _LONGEST_PAUSE))
        raise BackendError(
            f"The server at {self.url} gave no answer{what}: {trouble}, {self._retries + 1} times; see "
            "whether it runs there, and its log."
        )

    def _answer(self, response: Any, what: str) -> Any:
        status = response.status_code
        if status < 300:
            try:
                return response.json()
            except json.JSONDecodeError as error:
                raise BackendError(
                    f"What answers at {self.url} is no OpenAI-compatible server: {response.url.path} "
                    "gives no JSON; check the address."
                ) from error
        message = _message(response)
        if status in (401, 403):
            raise BackendError(f"The server at {self.url} wants another api_key: {message}.")
        if status == 404:
            raise ModelNotFound(
                f"The server at {self.url} does not have{what or ' it'}: {message}."
            )
        raise InvalidParameter(f"The server at {self.url} refused{what or ' it'}: {message}.")


def _message(response: Any) -> str:
    """Return the server's own words."""
    try:
        found = response.json()
        inner = found.get("error", found)
        text = (
            inner.get("message", inner.get("detail", inner)) if isinstance(inner, dict) else inner
        )
    except (ValueError, AttributeError):
        text = response.text[:300] or response.reason_phrase
    return str(text).strip().rstrip(".")


def _asked_pause(response: Any) -> float | None:
    try:
        return min(float(response.headers.get("retry-after", "")), _LONGEST_PAUSE)
    except ValueError:
        return None
