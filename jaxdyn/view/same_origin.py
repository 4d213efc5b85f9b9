"""A server on this computer that answers requests from its page only.

Every page in a browser can open a websocket to any address, including 127.0.0.1, and a page whose domain name is rebound to
127.0.0.1 even has the origin of the server. So each request is checked before viser processes it:

- `Host` must be a name that cannot be redirected by others: an IP address, localhost, this computer, or the host that is served.
- `Origin`, which browsers send with every websocket handshake, must be the page of the same host and port. A request without
  `Origin` comes from a program that is not a browser. Such a program could send any origin, so the request is accepted.

viser does not provide a way to add a check, so the `serve` of websockets is wrapped while viser starts its server.
"""

import contextlib
import http
import ipaddress
import socket
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import websockets.asyncio.server
from websockets.datastructures import Headers
from websockets.http11 import Request

_DEFAULT_PORTS = {"http": 80, "https": 443}
_starting = threading.Lock()


@contextlib.contextmanager
def same_origin_only(host: str) -> Iterator[list[Any]]:
    """Context in which started websocket servers answer requests only from the page that they serve.

    Args:
        host: Host name or IP address with which the server is started.

    Yields:
        List with an entry for each server that was started. If it is empty, no server is checked.
    """
    serve, checked = websockets.asyncio.server.serve, []

    def checking_serve(handler: Any, *address: Any, process_request: Any = None, **options: Any) -> Any:
        def check(connection: Any, request: Request) -> Any:
            problem = refusal(request.headers, host)
            if problem is not None:
                return connection.respond(http.HTTPStatus.FORBIDDEN, f"{problem}\n")
            return None if process_request is None else process_request(connection, request)

        checked.append(address)
        return serve(handler, *address, process_request=check, **options)

    with _starting:
        websockets.asyncio.server.serve = checking_serve  # pyright: ignore[reportAttributeAccessIssue]
        try:
            yield checked
        finally:
            websockets.asyncio.server.serve = serve


def refusal(headers: Headers, host: str) -> str | None:
    """Reason why a request is refused; None if it is accepted.

    Args:
        headers: Headers of the request.
        host: Host name or IP address with which the server was started.
    """
    hosts, origins = headers.get_all("Host"), headers.get_all("Origin")
    asked = _place(f"http://{hosts[0]}") if len(hosts) == 1 else None
    names = "localhost", host.lower(), socket.gethostname().lower()
    if asked is None or not (asked[0] in names or _address(asked[0]) is not None):
        return f"this server does not answer to the name {', '.join(hosts)!r}; use its IP address or localhost"
    if not origins:
        return None
    if len(origins) != 1 or _place(origins[0]) != asked:
        return f"this server answers requests from its page only, not from {', '.join(origins)!r}"
    return None


def _place(url: str) -> tuple[str, int] | None:
    """Name and port of a URL that contains nothing else; None for other URLs. All loopback addresses have the name localhost."""
    try:
        parts = urlsplit(url)
        default = _DEFAULT_PORTS[parts.scheme]
        port = default if parts.port is None else parts.port
    except (ValueError, KeyError):
        return None
    if not parts.hostname or parts.path or parts.query or parts.fragment or parts.username is not None:
        return None
    address = _address(parts.hostname)
    return "localhost" if address is not None and address.is_loopback else parts.hostname, port


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
