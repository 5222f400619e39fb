"""Styles and scripts under names that say their content: a browser asks for each once, and never shows an old one."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from ...reports.page.templates import read

__all__ = ["address_of", "serve_file"]

HERE = "streammetrics.serve.page.static"
KINDS = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
FILES = {"page.css": None, "page.js": None, "dashboard.css": HERE, "dashboard.js": HERE, "icon.svg": HERE}
FOREVER = "public, max-age=31536000, immutable"
DIGITS = 12


class File(NamedTuple):
    """What is sent, as what."""

    text: str
    kind: str


@cache
def files() -> dict[str, File]:
    """Return every file by the name that it has in addresses."""
    found = {}
    for name, package in FILES.items():
        text = read(name, package) if package else read(name)
        stem, _, ending = name.partition(".")
        digest = hashlib.sha256(text.encode()).hexdigest()[:DIGITS]
        found[f"{stem}-{digest}.{ending}"] = File(text, KINDS[ending])
    return found


def address_of(name: str) -> str:
    """Return where a file is, below the root.

    Examples
    --------
    >>> address_of("page.css").startswith("/static/page-"), address_of("page.css").endswith(".css")
    (True, True)
    """
    stem, _, ending = name.partition(".")
    return "/static/" + next(n for n in files() if n.startswith(f"{stem}-") and n.endswith(f".{ending}"))


def serve_file(request: Request) -> Response:
    """Answer with a file, for ever; of another content than it has, with nothing."""
    found = files().get(request.path_params["name"])
    if found is None:
        return PlainTextResponse("there is no such file", 404)
    return Response(found.text, media_type=found.kind, headers={"cache-control": FOREVER})
