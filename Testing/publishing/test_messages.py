"""Every sentence with which the program refuses something is on a page, and says what to do."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from pumit.errors import PumitError
from pumit.models.checkpoint import load_checkpoint
from pumit.segmentation import ClassLabel
from pumit.volume import Volume


@pytest.fixture(scope="module")
def sentences(repository: Path) -> Iterator[ModuleType]:
    """What reads the sentences from the sources, for the site."""
    sys.path.insert(0, str(repository / "scripts" / "pages"))
    try:
        import messages

        yield messages
    finally:
        sys.path.pop(0)


def fits(message: str, text: str) -> bool:
    """Whether a sentence with ellipses is what the program said."""
    parts = [re.escape(part) for part in message.split("…")]
    return re.search(".*".join(parts), " ".join(text.split())) is not None


def test_every_sentence_has_its_entry(sentences: ModuleType) -> None:
    page = sentences.page()
    assert len(sentences.messages()) > 500
    for message in sentences.messages():
        assert f"- {sentences._plain(message.text)}" in page, message


def test_every_explained_sentence_is_one_of_the_program(
    repository: Path, sentences: ModuleType
) -> None:
    page = (repository / "docs" / "how-to" / "troubleshooting.md").read_text(encoding="utf-8")
    explained = sentences.headings(page)
    assert len(explained) >= 40
    texts = [message.text for message in sentences.messages()]
    gone = [h for h in explained if not any(sentences.matches(h, text) for text in texts)]
    assert not gone


def test_sentences_that_a_user_really_meets_have_an_entry(
    sentences: ModuleType, tmp_path: Path
) -> None:
    texts = [message.text for message in sentences.messages()]
    (tmp_path / "empty.nii.gz").touch()
    (tmp_path / "strange.xyz").write_text("x")
    (tmp_path / "pickle.safetensors").write_bytes(b"\x80\x04K\x01.")
    said = []
    for path in ("missing.nii.gz", "empty.nii.gz", "strange.xyz"):
        with pytest.raises(PumitError) as error:
            Volume.read(tmp_path / path)
        said.append(str(error.value))
    with pytest.raises(PumitError) as error:
        load_checkpoint(tmp_path / "pickle.safetensors")
    said.append(str(error.value))
    with pytest.raises(PumitError) as error:
        Volume(np.zeros((2, 2, 2), np.float32), spacing_mm=(0, 1, 1))
    said.append(str(error.value))
    with pytest.raises(PumitError) as error:
        ClassLabel("a", color_rgb=(2.0, 0.0, 0.0))
    said.append(str(error.value))
    for sentence in said:
        assert any(fits(text, sentence) for text in texts), sentence


def test_a_refusal_on_the_command_line_has_an_entry(sentences: ModuleType) -> None:
    texts = [message.text for message in sentences.messages()]
    for arguments in (
        ["segment", "nowhere.nii.gz", "--point=1,2,3", "-o", "out.nii.gz"],
        ["segment", "nowhere.nii.gz", "-o", "out.nii.gz"],
        ["runs", "status", "nothing-of-this-name"],
        ["models", "export", "default"],
    ):
        command = [sys.executable, "-m", "pumit.cli.main", *arguments]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        assert run.returncode == 2, run.stderr
        assert any(fits(text, run.stderr) for text in texts), run.stderr
