"""The documentation: its links, its menu, and the site that is built of it."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from absent_torch import WITHOUT
from repository_scripts import script
from tracked_files import tracked_files

_LINK = re.compile(r"\]\(([^)\s]+)\)")


@pytest.fixture(scope="module")
def site(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `python3 scripts/docs.py` does: where there is no PyTorch.

    What takes a quarter of the time is left out: the index of the search, breaks in signatures.
    """
    if importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("material") is None:
        pytest.skip("mkdocs-material is not installed")
    folder = tmp_path_factory.mktemp("site")
    code = WITHOUT + "from mkdocs.__main__ import cli\ncli()"
    settings = (repository / "mkdocs.yml").read_text(encoding="utf-8")
    quicker = settings.replace("  - search\n", "").replace("line_length: 100", "line_length: 9999")
    command = [sys.executable, "-c", code, "build", "--strict", "-f", "-", "-d", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    run = subprocess.run(
        command,
        cwd=repository,
        env=environment,
        input=quicker,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-4000:]
    return folder


def anchors(text: str) -> set[str]:
    """What the headings of a page are called, as repositories' hosts do."""
    heads = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", re.sub(r"\[(.*?)\]\(.*?\)", r"\1", head)) for head in heads]
    return {head.lower().replace(" ", "-") for head in plain}


def test_every_link_of_every_page_leads_somewhere(repository):
    pages = [file for file in tracked_files(repository) if file.suffix == ".md"]
    assert len(pages) > 12
    for page in pages:
        for target in _LINK.findall(page.read_text(encoding="utf-8")):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            file = (page.parent / name).resolve() if name else page
            assert file.exists(), f"{page.name}: {target}"
            if anchor and file.suffix == ".md":
                assert anchor in anchors(file.read_text(encoding="utf-8")), (page.name, target)


def test_the_reference_is_that_of_the_program(repository):
    """Otherwise: `python scripts/write_reference.py`. The machine's memory does not matter."""
    code = (
        "import write_reference\n"
        "from pumit.server.sessions import limits\n"
        "limits.machine_bytes = lambda: 7 << 30\n"
        "pages = write_reference.pages()\n"
        "print([f.name for f, text in pages.items() if f.read_text('utf-8') != text])"
    )
    folders = (str(repository / name) for name in ("scripts", "PUMITSegment"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    told = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    assert told == "[]\n"


def test_links_into_this_repository_lead_to_files(repository):
    """Under its future address."""
    links = script("pages/outside").links()
    for address, files in links.items():
        ours = re.match(r"(?:blob/|tree/)?main/([^#]+)", address.partition("/SlicerPUMIT/")[2])
        assert not ours or (repository / ours[1]).exists(), (address, files)


def test_every_page_is_in_the_menu(repository):
    text = (repository / "mkdocs.yml").read_text(encoding="utf-8")
    named = set(re.findall(r"[\w/.-]+\.md", str(yaml.safe_load(text)["nav"])))
    docs = repository / "docs"
    pages = {f.relative_to(docs).as_posix() for f in tracked_files(repository) if docs in f.parents}
    assert {page for page in pages if page.endswith(".md")} <= named


@pytest.mark.slow
def test_site_builds_strictly_with_everything_that_the_program_tells(site):
    texts = {
        "reference/command_line.html": "pumit segment",
        "reference/http_api.html": "/pumit/v3/",
        "reference/recipes.html": "learning_rate",
        "reference/glossary.html": "spatially adaptive convolution",
        "reference/python/pumit.html": "pumit.volume.Volume.read",
        "reference/python/pumit.inference.interactive.html": "InteractiveSession",
        "reference/models/default.html": "Model card",
        "Resources/tutorial/1_scan.png": "",
    }
    for name, text in texts.items():
        assert (site / name).is_file(), name
        if text:
            assert text in (site / name).read_text(encoding="utf-8"), name


@pytest.mark.slow
def test_a_reader_of_the_site_is_sent_to_no_other_host_unasked(site):
    loaded = re.compile(
        r'<(?:script|img|iframe)[^>]*src="(https?:[^"]+)"|<link[^>]*href="(https?:[^"]+)"[^>]*rel="(?:stylesheet|preconnect)'
    )
    for page in site.rglob("*.html"):
        assert not loaded.findall(page.read_text(encoding="utf-8")), page.name
