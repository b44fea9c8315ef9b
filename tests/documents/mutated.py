"""Documents with something wrong in them: bytes, texts and JSON values changed at random, each the same for a seed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Any


def _nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


# Numbers at the limits of types, things that are no numbers, texts that look like something else, wrong containers.
ODD_VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        7,
        2**31,
        2**53 + 1,
        2**63 - 1,
        2**63,
        2**64,
        10**25,
        -(10**25),
        10**400,
        -(10**400),
    ),
    *(0.5, -0.0, 1e-310, 1e300, 1.7e308, -1e308, math.nan, math.inf, -math.inf),
    *(
        "",
        " ",
        "x",
        "nan",
        "inf",
        "-1",
        "1e999",
        "0x1F",
        "1_0",
        "12x12",
        "*",
        "-",
        "None",
        "true",
        "٤٢",
        "ﬀ",
        "𝟙",
        "🙂",
    ),
    *(
        "\ud83d",
        "\udc00x",
        "a\0b",
        "\n",
        "..",
        "../..",
        "/",
        "/dev/null",
        "C:\\",
        "é" * 3000,
        "9" * 4999,
        "gfx942",
        "gemm",
    ),
    *([], [[]], [None], [0, 0], ["x"], [math.nan], list(range(500)), {}, {"": None}, {"x": {"y": [{}]}}),
    *({str(i): i for i in range(300)}, _nested(30), _nested(70), _nested(400)),
)
ODD_KEYS = ("", "x", "schema", "__class__", "__init__", "self", "\ud800", "a.b", "é", "0", "kernel", "n" * 2000)
ODD_WORDS = (
    *("", "0", "-1", "1e999", "nan", "inf", "9" * 30, "9" * 4999, "1e5", "3.5", "0x5", "1_0", "٣", "²", "true", "None"),
    *(
        "x",
        "1x1",
        "1x1x1x1",
        "0x0x0",
        "65537x1x1",
        "*",
        "'",
        '"',
        "\0",
        "é",
        "-",
        "--",
        "[",
        "]" * 50,
        "{",
        "{}",
        "[[1]]",
    ),
    *("(" * 150 + ")" * 150, "-" * 3000 + "1", "[" * 3000, "{'a': 1", "{'m': 1}", "1979-05-27", "[1, [2]]", "nan, nan"),
)
ODD_BYTES = (
    b"\xff",
    b"\xfe\xff",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\0",
    b"\r",
    b"\r\n",
    b"\xef\xbb\xbf",
    b"NaN",
    b"1e999",
    b"{",
    b"]",
)


def changed_json(random: Random, document: Any) -> bytes:
    """A JSON document with other values, keys, structure or bytes."""
    if random.random() < 0.2:
        return changed_bytes(random, _dumped(random, document))
    changed = _copied(document)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        changed = _changed_value(random, changed)
    text = _dumped(random, changed)
    return _decorated(random, text) if random.random() < 0.15 else text


def _copied(value: Any) -> Any:
    """A copy that lists and tables can be changed in, however deep it is."""
    return json.loads(json.dumps(value))


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every container of a value with a key of it."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        container = waiting.pop()
        keys = list(container) if isinstance(container, dict) else range(min(len(container), 40))
        for key in keys:
            found.append((container, key))
            if isinstance(container[key], (dict, list)) and len(found) < 5000:
                waiting.append(container[key])
    return found


def _changed_value(random: Random, value: Any) -> Any:
    if not isinstance(value, (dict, list)) or not value or random.random() < 0.04:
        return random.choice(ODD_VALUES)
    container, key = random.choice(_places(value))
    odd = _copied(random.choice(ODD_VALUES))
    how = random.choice(("replace", "replace", "replace", "drop", "add", "other type", "repeat"))
    if how == "replace":
        container[key] = odd
    elif how == "drop":
        del container[key]
    elif how == "add" and isinstance(container, dict):
        container[random.choice(ODD_KEYS)] = odd
    elif how == "add":
        container.insert(key, odd)
    elif how == "repeat" and isinstance(container, list):
        container.extend(_copied(container))
    else:
        container[key] = _of_other_type(container[key])
    return value


def _of_other_type(value: Any) -> Any:
    """The same value in a type that looks like it."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, str):
        return [value]
    return (
        {str(i): each for i, each in enumerate(value)}
        if isinstance(value, list)
        else [list(pair) for pair in value.items()]
    )


def _dumped(random: Random, value: Any) -> bytes:
    indent = random.choice((None, None, 1))
    return json.dumps(value, ensure_ascii=random.random() < 0.5, indent=indent).encode("utf-8", "surrogatepass")


def _decorated(random: Random, text: bytes) -> bytes:
    """What values cannot say: a mark before the text, other line ends, a key twice, an end too early, many brackets."""
    how = random.randrange(6)
    if how == 0:
        return b"\xef\xbb\xbf" + text
    if how == 1:
        return text.replace(b"\n", b"\r\n").replace(b", ", b",\r\n")
    if how == 2:
        at = text.find(b"{") + 1
        return text[:at] + b'"schema": 1, "schema": 1, ' + text[at:]
    if how == 3:
        return text[: random.randrange(len(text) + 1)]
    return text.replace(b"1", random.choice((b"[" * 100_000, b"9" * 5000, b"1e400")), 1) if how == 4 else text * 2


def changed_bytes(random: Random, raw: bytes) -> bytes:
    """Bytes with some of them flipped, cut, repeated or followed by others."""
    content = bytearray(raw)
    for _ in range(random.choice((1, 1, 2, 3, 12))):
        at = random.randrange(len(content) + 1)
        how = random.randrange(6)
        if how == 0 and at < len(content):
            content[at] ^= 1 << random.randrange(8)
        elif how == 1 and at < len(content):
            content[at] = random.randrange(256)
        elif how == 2:
            del content[at : at + random.choice((1, 3, 40, len(content)))]
        elif how == 3:
            content[at:at] = content[max(0, at - random.choice((1, 20, 200))) : at]
        else:
            content[at:at] = random.choice(ODD_BYTES)
    return bytes(content)


def changed_lines(random: Random, text: str, words: Callable[[Random, str], str]) -> bytes:
    """A text with lines changed by `words`, dropped or repeated, or with changed bytes."""
    if random.random() < 0.3:
        return changed_bytes(random, text.encode())
    lines = text.splitlines()
    for _ in range(random.choice((1, 1, 2, 3))):
        at = random.randrange(len(lines))
        how = random.randrange(8)
        if how == 0 and len(lines) > 1:
            del lines[at]
        elif how == 1:
            lines.insert(at, lines[at])
        else:
            lines[at] = words(random, lines[at])
    end = random.choice(("\n", "\n", "\n", "\r\n", "\r"))
    return ("\ufeff" * (random.random() < 0.05) + end.join(lines)).encode("utf-8", "surrogatepass")


def changed_cells(separator: str) -> Callable[[Random, str], str]:
    """A change of one of the words of a line, which a separator keeps apart."""

    def change(random: Random, line: str) -> str:
        cells = line.split(separator)
        at = random.randrange(len(cells))
        if random.random() < 0.15:
            cells.insert(at, cells[at])
        else:
            cells[at] = random.choice(ODD_WORDS)
        return separator.join(cells)

    return change


def changed_right_side(odd: Sequence[str]) -> Callable[[Random, str], str]:
    """A change of what stands behind the `=` of a line."""

    def change(random: Random, line: str) -> str:
        key, mark, value = line.partition("=")
        if not mark:
            return random.choice(("", line[:-1], line + line, random.choice(ODD_WORDS)))
        if random.random() < 0.2:
            return f"{random.choice((*ODD_KEYS[:5], key + 'x'))}={value}".replace("\ud800", "")
        if " " in value.strip() and random.random() < 0.5:
            words = value.split(" ")
            words[random.randrange(len(words))] = random.choice(ODD_WORDS)
            return f"{key}={' '.join(words)}"
        return f"{key}={random.choice(odd)}"

    return change


ODD_TOML = (
    *(
        '"*"',
        '""',
        '"x"',
        "[]",
        "{}",
        "[[]]",
        "0",
        "1",
        "-1",
        "9" * 25,
        "9" * 5000,
        "1.5",
        "nan",
        "inf",
        "-inf",
        "1e999",
    ),
    *("true", "1979-05-27", "07:32:00", "1979-05-27T00:00:00Z", "0x10", "0b1", "1_0", "[1, 2]", "[[1], [2, 3, 4]]"),
    *("{m = 1}", "{m = [1, 2], n = [], k = 3}", "{m = [64, 128], n = 64, k = [32]}", '["64x64x32", "0x0x0"]', '["*"]'),
    *(
        '"99999999x1x1"',
        f'"{"1" * 5000}"',
        "[" * 300 + "]" * 300,
        "[" * 20_000,
        '"\\ud800"',
        '"\\u0000"',
        '["gfx942", "gfx942"]',
    ),
)
