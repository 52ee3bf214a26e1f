"""The gate before every request: who may ask, from where, how much, and what browsers are told.

What it keeps out, besides strangers:
- DNS rebinding: a page on the web whose name suddenly means 127.0.0.1 still sends its own name in `Host`; only IP
  literals and configured names pass.
- Cross-site requests: nothing answers to cookies, so a foreign page has no authority to borrow; requests that a browser
  marks as coming from another site are refused all the same, and no CORS header is ever sent.
"""

import ipaddress
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final
from urllib.parse import quote, urlsplit

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse

from . import problems
from .limits import Buckets
from .parts import Parts, WebSettings
from .problems import Problem
from .tokens import Token, TokenScope, TokenStore

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

HEALTH_PATHS: Final = frozenset({"/healthz", "/readyz", "/livez", "/-/healthy", "/-/ready"})
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_PAGES: Final = frozenset({"/", "/docs"})  # answer strangers with a form for the token
_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)
_NO_CONTENT_POLICY: Final = b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"


class Gate:
    """ASGI middleware, the outermost. Puts the token found into `scope["state"]["token"]`. Takes up the settings of a reload
    with the next request; who has used up an allowance keeps it used up unless the allowance itself was changed."""

    def __init__(self, app: App, *, parts: Parts, now: Callable[[], float] = time.monotonic) -> None:
        self._app, self._parts, self._tokens, self._now = app, parts, parts.tokens, now
        self._take_up(parts.settings)

    def _take_up(self, settings: WebSettings) -> None:
        known: WebSettings | None = getattr(self, "_settings", None)
        self._settings, limits = settings, settings.limits
        self._hosts = allowed_hosts(settings)
        if known is None or known.limits != limits:
            self._requests = Buckets(limits.requests_per_s, limits.burst, now=self._now)
            self._failures = Buckets(limits.failures_per_s, limits.failures_burst, now=self._now)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
                return
            await self._app(scope, receive, send)
            return
        if self._parts.settings is not self._settings:
            self._take_up(self._parts.settings)
        scope, dressed = _without_prefix(scope, self._settings.root_path), _dressed(send)
        headers = _Headers(scope["headers"])
        try:
            token = self._admit(scope, headers)
            body = _Body(receive, headers.one(b"content-length"), self._settings.limits.body_bytes)
        except Problem as problem:
            if not (problem.status == 401 and scope["method"] in ("GET", "HEAD") and str(scope["path"]) in _PAGES):
                await problems.response(problem, scope["path"])(scope, receive, dressed)
                return
            token, body = None, _Body(receive, None, self._settings.limits.body_bytes)
            scope.setdefault("state", {})["is_stranger"] = True
        scope.setdefault("state", {})["token"] = token
        if not scope["path"]:  # the bare prefix: relative addresses on the page would leave it
            await RedirectResponse(f"{self._settings.root_path}/", 308)(scope, receive, dressed)
            return
        await self._app(_as_get(scope), body.receive, _headless(dressed) if scope["method"] == "HEAD" else dressed)

    def _admit(self, scope: Scope, headers: "_Headers") -> Token | None:
        """The token, None where none is needed.

        Raises:
            Problem: the request is refused.
        """
        path, client = str(scope["path"]), (scope.get("client") or ("local", 0))[0]
        # uvicorn bounds only headers that arrive in parts, and answers 400 then
        if headers.size + len(scope.get("raw_path") or b"") + len(scope["query_string"]) > self._settings.limits.header_bytes:
            raise Problem(400, "headers-too-large", "The request line and headers are too large.")
        if path in HEALTH_PATHS and scope["method"] in _SAFE_METHODS:
            return None  # probes come by address and without secrets
        self._check_host(headers.one(b"host"))
        _check_site(headers, navigates=path in _PAGES and scope["method"] == "GET")
        wait_s = self._requests.take(client)
        if wait_s:
            raise _too_many("Too many requests from this address.", wait_s)
        return self._authorise(path, scope["method"], headers.one(b"authorization"), client)

    def _authorise(self, path: str, method: str, authorization: bytes | None, client: str) -> Token | None:
        needed = self._needed(path, method)
        if authorization is None:
            if needed is None:
                return None
            raise _unauthorised("This needs a bearer token.")
        wait_s = self._failures.wait_s(client)
        if wait_s:
            raise _too_many("Too many wrong tokens from this address.", wait_s)
        kind, _, presented = authorization.decode("latin-1").partition(" ")
        token = self._tokens.find(presented.strip()) if kind.lower() == "bearer" else None
        if token is None:
            self._failures.take(client)
            raise _unauthorised("The token is not known.")
        if needed is not None and not token.allows(needed):
            raise Problem(
                403,
                "scope-missing",
                f"The token {token.name!r} lacks the scope {needed.value!r}.",
                do="Use a token with that scope.",
                headers={"www-authenticate": f'Bearer error="insufficient_scope", scope="{needed.value}"'},
            )
        return token

    def _needed(self, path: str, method: str) -> TokenScope | None:
        settings = self._settings
        if method not in _SAFE_METHODS:
            return TokenScope.WRITE
        if path == "/metrics":
            return TokenScope.METRICS if settings.metrics_need_token else None
        return None if settings.is_loopback and not settings.reads_need_token else TokenScope.READ

    def _check_host(self, host: bytes | None) -> None:
        name = _host_name((host or b"").decode("latin-1"))
        if name is None or (not _is_address(name) and name not in self._hosts):
            raise Problem(
                421,
                "wrong-host",
                "This name is not one under which the daemon may be reached.",
                do="Use its address, or add the name to `allowed_hosts` or `external_url` in the configuration.",
            )


def allowed_hosts(settings: WebSettings) -> frozenset[str]:
    """Names that may stand in `Host`; addresses always may, since rebinding needs a name."""
    external = urlsplit(settings.external_url).hostname
    names = ["localhost", *settings.allowed_hosts, *([external] if external else [])]
    return frozenset(name.lower().rstrip(".") for name in names)


def refuse_open_bind(addresses: Iterable[str], tokens: TokenStore) -> None:
    """Raises:
    OpenBindRefused: an address is reachable from other machines and there is no token that could read.
    """
    open_ones = [address for address in addresses if not is_loopback(address)]
    if open_ones and not any(token.allows(TokenScope.READ) for token in tokens.tokens):
        raise OpenBindRefused(
            f"listen: {open_ones[0]} is reachable from other machines, and no token is configured: what the log says"
            " would be open to all of them\n      Add one to `auth: tokens:` (make an entry with"
            " `sglang-watchdog config token NAME`), or listen on 127.0.0.1."
        )


class OpenBindRefused(Exception):
    """The daemon was told to listen beyond loopback without a token."""


def is_loopback(address: str) -> bool:
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address.strip("[]").split("%")[0]).is_loopback
    except ValueError:
        return False


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.split("%", maxsplit=1)[0])
    except ValueError:
        return False
    return True


def _host_name(host: str) -> str | None:
    """The name or address in a Host header, None if it is none."""
    if not host or any(character in host for character in "/@\\ ,"):
        return None
    try:
        split = urlsplit(f"//{host}")
        split.port  # noqa: B018 - raises when it is no number
    except ValueError:
        return None
    return None if split.hostname is None else split.hostname.lower().rstrip(".")


def _check_site(headers: "_Headers", *, navigates: bool) -> None:
    """Refuse what a browser says comes from a page of another site; a click on a link to one of our pages is
    welcome."""
    site = headers.one(b"sec-fetch-site")
    is_click = navigates and headers.one(b"sec-fetch-mode") == b"navigate" and headers.one(b"sec-fetch-dest") == b"document"
    if site in (b"cross-site", b"same-site") and not is_click:
        raise Problem(403, "cross-site", "Requests from pages of other sites are refused.")
    origin = headers.one(b"origin")
    if origin is not None:
        try:
            ours = urlsplit(origin.decode("latin-1")).netloc.lower() == (headers.one(b"host") or b"").decode("latin-1").lower()
        except ValueError:
            ours = False
        if not ours:
            raise Problem(403, "cross-site", "Requests from pages of other sites are refused.")


def _unauthorised(detail: str) -> Problem:
    return Problem(
        401,
        "token-missing",
        detail,
        do="Send `Authorization: Bearer TOKEN`.",
        headers={"www-authenticate": 'Bearer realm="sglang-watchdog"'},
    )


def _too_many(detail: str, wait_s: float) -> Problem:
    return Problem(
        429,
        "too-many-requests",
        detail,
        do="Wait and try again.",
        headers={"retry-after": str(max(1, round(wait_s + 0.5)))},
    )


def _without_prefix(scope: Scope, prefix: str) -> Scope:
    """The request as it is behind our path prefix, with `root_path` for who makes addresses of ours; a proxy may have taken the
    prefix off already. The bare prefix gives an empty path."""
    prefix, path = prefix.rstrip("/"), str(scope["path"])
    if not prefix:
        return scope
    if path != prefix and not path.startswith(prefix + "/"):
        return {**scope, "root_path": prefix}
    stripped = path[len(prefix) :]
    return {**scope, "root_path": prefix, "path": stripped, "raw_path": quote(stripped).encode()}


class _Headers:
    def __init__(self, raw: Iterable[tuple[bytes, bytes]]) -> None:
        self._raw = list(raw)

    @property
    def size(self) -> int:
        return sum(len(name) + len(value) for name, value in self._raw)

    def one(self, name: bytes) -> bytes | None:
        """The header's value.

        Raises:
            Problem: it is there twice, so that two readers could see two different requests.
        """
        found = [value for key, value in self._raw if key.lower() == name]
        if len(found) > 1:
            raise Problem(400, "header-repeated", f"The header {name.decode()} is there more than once.")
        return found[0] if found else None


class _Body:
    """Counts the body while it is received, whatever its announced length."""

    def __init__(self, receive: Receive, announced: bytes | None, limit: int) -> None:
        self._receive, self._limit, self._taken = receive, limit, 0
        if announced is not None and (not announced.isdigit() or int(announced) > limit):
            raise self._problem()

    async def receive(self) -> MutableMapping[str, Any]:
        message = await self._receive()
        self._taken += len(message.get("body", b""))
        if self._taken > self._limit:
            raise HTTPException(413)  # an exception that FastAPI lets through while it reads a body
        return message

    def _problem(self) -> Problem:
        return Problem(413, "too-large", f"Bodies may have {self._limit} bytes at most.", headers={"connection": "close"})


def _as_get(scope: Scope) -> Scope:
    """HEAD is GET whose answer has no body (RFC 9110, 9.3.2), on every route there is but the stream."""
    return {**scope, "method": "GET"} if scope["method"] == "HEAD" and scope["path"] != problems.STREAM else scope


def _headless(send: Send) -> Send:
    """The answer without its body."""

    async def headless(message: MutableMapping[str, Any]) -> None:
        await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

    return headless


def _dressed(send: Send) -> Send:
    """Adds the security headers to the answer; a page brings its own policy with its nonce."""

    async def dressed(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            present = {name.lower() for name, _ in headers}
            headers.extend(each for each in _HEADERS if each[0] not in present)
            if b"content-security-policy" not in present:
                headers.append((b"content-security-policy", _NO_CONTENT_POLICY))
            if b"cache-control" not in present:
                headers.append((b"cache-control", b"no-store"))
            message = {**message, "headers": headers}
        await send(message)

    return dressed
