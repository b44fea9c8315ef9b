"""A remote tier in a Redis (or Valkey) server: strings for blobs, strings with an expiry for claims."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from tilewright.base.errors import RemoteError, StoreError, choose
from tilewright.base.knobs import REMOTE
from tilewright.building.store.layout import SCHEMA, check_key
from tilewright.building.store.remote import CLAIM_TTL_S, CONNECT_TIMEOUT_S, OPERATION_TIMEOUT_S, check_ttl
from tilewright.building.store.resp import Connections, RedisCommand, RedisServer, Reply

_PORT = 6379  # Redis' default
_OPTIONS = ("ttl_s",)
_WHOLE = re.compile(r"[0-9]{1,9}")  # seconds or a database number

_MOST_CLAIM_MS = round(CLAIM_TTL_S * 1000)
# Compare and set atomically on the server: a claim may expire and pass to another holder between two commands. Claims
# with a longer expiry than ours, or none (-1), are ignored: we never create them, and they might never end.
_CLAIM = (
    "local held = redis.call('get', KEYS[1]) local left = redis.call('pttl', KEYS[1]) "
    "if held and held ~= ARGV[1] and left >= 0 and left <= tonumber(ARGV[3]) then return 0 end "
    "redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2]) return 1"
)
_RELEASE = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end return 0"


@dataclass(frozen=True)
class RedisRemote:
    """Blobs and claims in a server. `ttl_s` is the time to keep a blob after it was written; 0 means for ever."""

    address: str
    connections: Connections = field(compare=False, repr=False)
    ttl_s: int = 0

    def describe(self) -> str:
        return self.address

    def get_sizes(self, keys: Sequence[str]) -> Mapping[str, int]:
        replies = self.connections.send_commands([RedisCommand(("STRLEN", _blob_key(key))) for key in keys])
        found = {key: _require_number(reply) for key, reply in zip(keys, replies, strict=True)}
        return {key: size for key, size in found.items() if size > 0}

    def fetch(self, sizes: Mapping[str, int]) -> Mapping[str, bytes]:
        # A range instead of the whole value: it may have grown to Redis' limit of 512 MB since its size was read.
        commands = [RedisCommand(("GETRANGE", _blob_key(key), 0, size), size + 1) for key, size in sizes.items()]
        replies = self.connections.send_commands(commands)
        found = {key: _require_bytes(reply) for key, reply in zip(sizes, replies, strict=True)}
        return {key: blob for key, blob in found.items() if 0 < len(blob) <= sizes[key]}

    def push(self, key: str, blob: bytes) -> None:
        limit = ("PX", self.ttl_s * 1000) if self.ttl_s else ()
        self.connections.send_commands([RedisCommand(("SET", _blob_key(key), blob, *limit))])

    def claim(self, key: str, holder: str, ttl_s: float) -> bool:
        milliseconds = max(1, round(check_ttl(ttl_s) * 1000))
        return self._run_script(_CLAIM, key, holder, milliseconds, _MOST_CLAIM_MS) == 1

    def is_claimed(self, key: str) -> bool:
        (left,) = self.connections.send_commands([RedisCommand(("PTTL", _claim_key(key)))])
        return 0 <= _require_number(left) <= _MOST_CLAIM_MS  # -2: no claim; -1: no expiry

    def release(self, key: str, holder: str) -> None:
        self._run_script(_RELEASE, key, holder)

    def abandon(self) -> None:
        self.connections.shut()

    def _run_script(self, script: str, key: str, *arguments: str | int) -> int:
        (reply,) = self.connections.send_commands([RedisCommand(("EVAL", script, 1, _claim_key(key), *arguments))])
        return _require_number(reply)


def _require_number(reply: Reply) -> int:
    if type(reply) is not int:
        raise RemoteError(f"the server sent {str(reply)[:40]!r} where it should send a number")
    return reply


def _require_bytes(reply: Reply) -> bytes:
    if type(reply) is not bytes:
        raise RemoteError(f"the server sent {str(reply)[:40]!r} where it should send a value")
    return reply


def open_redis(url: str) -> RedisRemote:
    """Open the server at `redis://[user:password@]host[:port][/db][?ttl_s=SECONDS]`, or `rediss://` with TLS."""
    parts = urlsplit(url)
    port, database = _parse_port(parts), parts.path.strip("/") or "0"
    if not parts.hostname or _WHOLE.fullmatch(database) is None:
        raise _make_url_error("it must be redis://host:port/db, with a database number")
    server = RedisServer(
        host=parts.hostname,
        port=port,
        database=int(database),
        user=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        tls=parts.scheme == "rediss",
        connect_s=CONNECT_TIMEOUT_S,
        operation_s=OPERATION_TIMEOUT_S,
    )
    address = f"{parts.scheme}://{parts.hostname}:{port}/{database}"
    return RedisRemote(address, Connections(server), _parse_ttl(parts))


def _parse_port(parts: SplitResult) -> int:
    try:
        return parts.port or _PORT
    except ValueError as error:
        raise _make_url_error(str(error)) from error


def _parse_ttl(parts: SplitResult) -> int:
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in options:
        choose("option of a redis address", name, _OPTIONS)
    ttl = options.get("ttl_s", "0")
    if _WHOLE.fullmatch(ttl) is None:
        raise _make_url_error(f"ttl_s={ttl!r} is not an integer number of seconds")
    return int(ttl)


def _make_url_error(what: str) -> StoreError:
    return StoreError(f"{REMOTE.name} cannot be used: {what}")  # without the URL: it may contain a password


def _blob_key(key: str) -> str:
    return f"tilewright:v{SCHEMA}:blob:{check_key(key)}"


def _claim_key(key: str) -> str:
    return f"tilewright:v{SCHEMA}:claim:{check_key(key)}"
