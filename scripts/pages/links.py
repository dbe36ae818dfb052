"""Links of a page, written for the repository, as they are on the site."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from pathlib import Path

# [text](target) and ![text](target); a target may have an anchor.
_LINK = re.compile(r"(\]\()([^)\s]+)(\))")
_OUTSIDE = re.compile(r"[a-z]+:|#|/")


def rewritten(
    text: str, source: str, *, pages: Mapping[str, str], root: Path, repository: str
) -> str:
    """Return a page's text with links that hold on the site.

    Args:
        text: Markdown whose links are relative to `source`, as the repository's host shows them.
        source: Path of the page in the repository, with forward slashes.
        pages: Path in the repository: path on the site, of pages and pictures.
        root: The repository.
        repository: Address of the repository; what is not on the site is linked there.

    Returns:
        The text; a link that leads nowhere is left as it is, so that the strict build names it.
    """
    here = pages[source]

    def link(match: re.Match[str]) -> str:
        target, hash_, anchor = match[2].partition("#")
        if not target or _OUTSIDE.match(target):
            return match[0]
        full = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if full in pages:
            new = posixpath.relpath(pages[full], posixpath.dirname(here) or ".")
        elif not full.startswith("..") and (root / full).exists():
            kind = "tree" if (root / full).is_dir() else "blob"
            new = f"{repository}/{kind}/main/{full}"
        else:
            return match[0]
        return f"{match[1]}{new}{hash_}{anchor}{match[3]}"

    return _LINK.sub(link, text)
