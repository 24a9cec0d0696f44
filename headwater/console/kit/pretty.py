"""Values as people read them: JSON with lines and colours, or bytes in rows of sixteen. No digit of a number is touched."""

from __future__ import annotations

import json
import re
from html import escape

#: Strings, the marks of structure, and all else: numbers and words. Spaces between them are left out.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_OPEN, _CLOSE = "{[", "}]"


def is_json(text: str) -> bool:
    """Whether a text is a JSON object or array.

    >>> is_json('{"id": 1}'), is_json("hello"), is_json("12")
    (True, False, False)
    """
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return False
    return True


def pretty(text: str) -> str:
    """JSON over many lines. It is laid out, not read: numbers keep their digits, and keys that come twice stay.

    >>> print(pretty('{"id":73314510714175488,"rest":[1.10,{}]}'))
    {
      "id": 73314510714175488,
      "rest": [
        1.10,
        {}
      ]
    }
    """
    parts: list[str] = []
    depth, before = 0, ""
    for token in _TOKEN.findall(text):
        if token in _CLOSE:
            depth -= 1
            if before not in _OPEN or not before:
                parts.append("\n" + "  " * depth)
        elif before and before in "{[,":
            parts.append("\n" + "  " * depth)
        if token in _OPEN:
            depth += 1
        parts.append(": " if token == ":" else token)
        before = token
    return "".join(parts)


def coloured(text: str) -> str:
    """JSON as HTML, with its names, texts, numbers and words told apart.

    >>> coloured('{"a": 1, "b": "<i>"}')
    '{<span class="k">&quot;a&quot;</span>: <span class="n">1</span>, <span class="k">&quot;b&quot;</span>: <span class="s">&quot;&lt;i&gt;&quot;</span>}'
    """
    parts, at = [], 0
    for found in _TOKEN.finditer(text):
        token = found.group()
        parts.append(text[at : found.start()])
        at = found.end()
        kind = _kind(token, text[at : at + 1])
        parts.append(f'<span class="{kind}">{escape(token)}</span>' if kind else token)
    return "".join([*parts, escape(text[at:])])


def _kind(token: str, after: str) -> str:
    if token.startswith('"'):
        return "k" if after == ":" else "s"
    if token in "{}[],:":
        return ""
    return "n" if token[0].isdigit() or token[0] == "-" else "l"


def dump(data: bytes) -> str:
    """Bytes in rows of sixteen, with the characters that they may be.

    >>> print(dump(b"Headwater"))
    00000000  48 65 61 64 77 61 74 65  72                       Headwater
    """
    lines = []
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        digits = f"{row[:8].hex(' '):<23}  {row[8:].hex(' '):<23}"
        characters = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in row)
        lines.append(f"{at:08x}  {digits}  {characters}")
    return "\n".join(lines)
