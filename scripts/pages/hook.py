"""MkDocs hook that adds generated pages and files from outside `docs/` to the site.

MkDocs calls the functions `on_...`. The pages generated here are not committed, so they cannot be
out of date.
"""

from __future__ import annotations

from pathlib import Path

import http_api
import outside
import python_api
import recipes
from links import rewritten
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
# Pages kept where people and repository hosts look for them: their path on the site.
ELSEWHERE = {
    "CONTRIBUTING.md": "contributing.md",
    "CODE_OF_CONDUCT.md": "code_of_conduct.md",
    "ARCHITECTURE.md": "explanation/architecture.md",
    "SECURITY.md": "explanation/security.md",
    "CHANGELOG.md": "reference/release_notes.md",
    "Testing/harness/README.md": "explanation/harness.md",
}
PICTURES = (".png", ".svg", ".gif", ".webp", ".html")
_GLOSSARY = "## Glossary\n"


def sources() -> dict[str, str]:
    """Map the repository paths of pages and pictures, without generated ones, to site paths."""
    docs = (ROOT / "docs").rglob("*")
    found = {
        f"docs/{path}": path for path in (_name(f, ROOT / "docs") for f in docs if f.is_file())
    }
    found |= {name: page for name, page in ELSEWHERE.items() if (ROOT / name).is_file()}
    for card in (ROOT / "PUMITSegment" / "pumit" / "models").glob("*.md"):
        found[_name(card, ROOT)] = f"reference/models/{card.name}"
    for picture in (ROOT / "Resources").rglob("*"):
        if picture.suffix in PICTURES:
            found[_name(picture, ROOT)] = _name(picture, ROOT)
    return found


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the packages to the menu entry `Python`."""
    (reference,) = [part["Reference"] for part in config.nav or [] if "Reference" in part]
    (python,) = [part["Python"] for part in reference if "Python" in part]
    packages = python_api.packages(ROOT / "PUMITSegment" / "pumit")
    python.extend({name: f"reference/python/{name}.md"} for name in packages)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add generated pages and files from outside `docs/`."""
    for source, page in sources().items():
        if not source.startswith("docs/"):
            files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    architecture = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    made = {
        "reference/http_api.md": http_api.page(),
        "reference/outside.md": outside.page(),
        "reference/recipes.md": recipes.page(),
        "reference/openapi.json": http_api.as_json(),
        "reference/glossary.md": "# Glossary\n" + architecture.partition(_GLOSSARY)[2],
    }
    for name, text in python_api.pages(ROOT / "PUMITSegment" / "pumit").items():
        made[f"reference/python/{name}"] = text
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links to the site's paths."""
    pages = sources()
    source = next((s for s, p in pages.items() if p == page.file.src_uri), None)
    if source is None:
        return markdown
    if source == "ARCHITECTURE.md":
        markdown = (
            markdown.partition(_GLOSSARY)[0] + "Words: [glossary](../reference/glossary.md).\n"
        )
        pages = {**pages, source: page.file.src_uri}
    repository = str(config.repo_url).rstrip("/")
    return rewritten(markdown, source, pages=pages, root=ROOT, repository=repository)


def _name(file: Path, folder: Path) -> str:
    return file.relative_to(folder).as_posix()
