"""A remote tier in a Redis (or Valkey) server: strings for blobs, strings with a time limit for claims."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from tilewright.base.errors import RemoteError, StoreError, choose
from tilewright.base.knobs import REMOTE
from tilewright.building.store.blob import MAX_BLOB_BYTES
from tilewright.building.store.layout import SCHEMA, check_key
from tilewright.building.store.remote import CONNECT_TIMEOUT_S, OPERATION_TIMEOUT_S

if TYPE_CHECKING:
    import redis

_PORT = 6379  # Redis' own
_OPTIONS = ("ttl_s",)

# Compare and act in one step on the server: a claim may expire and pass to another between two commands.
_PROLONG = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) end return 0"
_RELEASE = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end return 0"


@dataclass(frozen=True)
class RedisRemote:
    """Blobs and claims in a server. `ttl_s` is how long a blob is kept after it was written, 0 for ever."""

    address: str
    client: redis.Redis
    ttl_s: int = 0

    def describe(self) -> str:
        return self.address

    def sizes(self, keys: Sequence[str]) -> Mapping[str, int]:
        found = self._each(keys, lambda pipe, name: pipe.strlen(name))
        return {key: int(size) for key, size in zip(keys, found, strict=True) if size}

    def fetch(self, keys: Sequence[str]) -> Mapping[str, bytes]:
        # A range, not the whole: a value may have grown to Redis' limit of 512 MB since its size was asked.
        found = self._each(keys, lambda pipe, name: pipe.getrange(name, 0, MAX_BLOB_BYTES))
        return {key: bytes(blob) for key, blob in zip(keys, found, strict=True) if blob}

    def push(self, key: str, blob: bytes) -> None:
        with _explained(self.address):
            self.client.set(_blob(key), blob, px=self.ttl_s * 1000 or None)

    def claim(self, key: str, holder: str, ttl_s: float) -> bool:
        name, milliseconds = _claim(key), max(1, round(ttl_s * 1000))
        with _explained(self.address):
            if self.client.set(name, holder, nx=True, px=milliseconds):
                return True
            return bool(self.client.eval(_PROLONG, 1, name, holder, str(milliseconds)))

    def claimed(self, key: str) -> bool:
        with _explained(self.address):
            return bool(self.client.exists(_claim(key)))

    def release(self, key: str, holder: str) -> None:
        with _explained(self.address):
            self.client.eval(_RELEASE, 1, _claim(key), holder)

    def _each(self, keys: Sequence[str], ask: Callable[[Any, str], Any]) -> list[Any]:
        """One command per key, sent together and answered in one round trip."""
        with _explained(self.address), self.client.pipeline(transaction=False) as pipe:
            for key in keys:
                ask(pipe, _blob(key))
            answers: list[Any] = pipe.execute()
        return answers


def redis_remote(url: str) -> RedisRemote:
    """The server at `redis://[user:password@]host[:port][/db][?ttl_s=SECONDS]`, or `rediss://` with TLS."""
    client_of = _client_of()
    parts = urlsplit(url)
    port, database = _port(parts), parts.path.strip("/") or "0"
    if not parts.hostname or not database.isdecimal():
        raise _bad_url("it must be redis://host:port/db, with the number of a database")
    client = client_of(
        host=parts.hostname,
        port=port,
        db=int(database),
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        ssl=parts.scheme == "rediss",
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        socket_timeout=OPERATION_TIMEOUT_S,
    )
    return RedisRemote(f"{parts.scheme}://{parts.hostname}:{port}/{database}", client, _ttl(parts))


def _client_of() -> Callable[..., redis.Redis]:
    try:
        from redis import Redis  # noqa: PLC0415  (an extra)
        from redis.backoff import NoBackoff  # noqa: PLC0415
        from redis.retry import Retry  # noqa: PLC0415
    except ImportError as error:
        raise StoreError(
            f"{REMOTE.name} names a Redis server, and the Python package `redis` cannot be imported: {error}. "
            "Run: pip install 'tilewright[redis]'"
        ) from error
    # Without retries: they would multiply the time limits, and the breaker does their work.
    return lambda **options: Redis(retry=Retry(NoBackoff(), 0), **options)


def _port(parts: SplitResult) -> int:
    try:
        return parts.port or _PORT
    except ValueError as error:
        raise _bad_url(str(error)) from error


def _ttl(parts: SplitResult) -> int:
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in options:
        choose("option of a redis address", name, _OPTIONS)
    ttl = options.get("ttl_s", "0")
    if not ttl.isdecimal():
        raise _bad_url(f"ttl_s={ttl!r} is no whole number of seconds")
    return int(ttl)


def _bad_url(what: str) -> StoreError:
    return StoreError(f"{REMOTE.name} cannot be used: {what}")  # without the address: it may hold a password


def _blob(key: str) -> str:
    return f"tilewright:v{SCHEMA}:blob:{check_key(key)}"


def _claim(key: str) -> str:
    return f"tilewright:v{SCHEMA}:claim:{check_key(key)}"


@contextmanager
def _explained(address: str) -> Iterator[None]:
    from redis.exceptions import RedisError  # noqa: PLC0415  (an extra)

    try:
        yield
    except (RedisError, OSError) as error:
        raise RemoteError(f"{address}: {error}") from error
