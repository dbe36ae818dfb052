"""Every sentence with which the program refuses something heads an entry that says what to do."""

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
    """Headed by its literal text, on one of the pages on troubleshooting."""
    texts = {message.text for message in sentences.messages()}
    assert len(texts) > 700
    assert sorted(texts - set(sentences.explained())) == []
    page = sentences.page()
    for text in texts:
        assert f"- {sentences._plain(text)} [→](../how-to/" in page, text


def test_every_headed_sentence_is_one_of_the_program(sentences: ModuleType) -> None:
    texts = {message.text for message in sentences.messages()}
    for name, page in sentences.guides().items():
        heads = sentences.headings(page)
        assert heads, name
        assert len(heads) == len(set(heads)), name
        gone = [h for h in heads if not any(sentences.matches(h, text) for text in texts)]
        assert not gone, name


def test_every_headed_sentence_is_explained(sentences: ModuleType) -> None:
    """By what stands below it, or below the last one of those that belong together."""
    for name, page in sentences.guides().items():
        parts = re.split(r"^### .*$", page, flags=re.MULTILINE)[1:]
        for number in range(len(parts)):
            below = next((each for each in parts[number:] if each.strip()), "")
            assert len(below.split("\n## ")[0].split()) >= 4, (name, number)
        for part in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
            assert not part.rstrip().splitlines()[-1].startswith("### "), (name, part[:60])


def test_the_pages_are_written_as_their_sentences_are_read(sentences: ModuleType) -> None:
    """A text that is made of parts, of a constant and by a function elsewhere is found."""
    texts = {message.text for message in sentences.messages()}
    for text in (
        "This needs PyTorch: pip install 'pumit[train]'.",  # one of two, in one expression
        "A newer request took its place.",  # a constant of its file, not of another one
        "The volume has no voxels; choose another one.",  # a function that is imported
        "A prompt at … mm lies outside the image. Remove it, or move it into the image.",
        "… is empty; segment something in it, or remove it.",  # what a check of an export finds
        "has no label like …; make one, or leave the case out",  # what a check of cases finds
        "The worker ended unexpectedly (status …). It restarts with the next prompt; your "
        "prompts are kept.",  # what a panel shows
    ):
        assert text in texts
    # Help, a question, good news: few, and still what the program says.
    assert len(sentences.NO_TROUBLE) <= 5
    source = "".join(
        re.sub(r'"\s*f?"', "", file.read_text(encoding="utf-8"))
        for folder in ("PUMITSegment", "PUMITTrain")
        for file in (sentences.ROOT / folder).rglob("*.py")
    )
    for text in sentences.NO_TROUBLE:
        assert text.partition("…")[0] in source, text


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
