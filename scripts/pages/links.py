"""Conversion of links between files of the repository to links of the site."""

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
    """Return a page's text with its links rewritten for the site.

    Args:
        text: Markdown whose links are relative to `source`.
        source: Path of the page in the repository, with forward slashes.
        pages: Repository path to site path, of pages and pictures.
        root: Folder of the repository.
        repository: URL of the repository, for links to files that are not on the site.

    Returns:
        The text; broken links are unchanged, so that the strict build reports them.
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
