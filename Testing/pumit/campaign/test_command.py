"""`pumit campaign`: the whole loop from the command line."""

import json
from collections.abc import Callable

import pytest
from pumit.campaign import Campaign
from pumit.cli.main import main
from pumit.export.write import write_segmentation


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs the command."""

    def run(*arguments: object) -> tuple[int, str, str]:
        status = main(["campaign", *map(str, arguments)])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def test_a_campaign_from_the_command_line(run, make_folder, truth_of, tmp_path):
    folder, place = make_folder(4, 1), tmp_path / "campaign"
    status, out, err = run("new", place, folder, "--class", "outer", "--class", "inner=tumour")
    assert status == 0, err
    assert "4 scans: 1 labelled, 3 open" in out
    status, out, _ = run("next", place, "--order", "list", "--json")
    found = json.loads(out)
    assert found["sentence"] == "Open the next scan"
    assert found["scan"]["name"] == "scan01"
    assert found["scan"]["shown"] is None
    scan = Campaign.open(place).scan("scan01")
    write_segmentation(truth_of(scan), tmp_path / "mine.seg.nrrd")
    accept = ("accept", place, "scan01", tmp_path / "mine.seg.nrrd")
    status, out, err = run(*accept, "--reviewer", "A", "--clicks", 1)
    assert status == 0, err
    assert "scan01: accepted" in out
    assert "1 click," in out
    run("later", place, "scan02")
    run("leave-out", place, "scan03")
    status, out, _ = run("status", place, "--json")
    content = json.loads(out)
    states = {s["name"]: s["state"] for s in content["scans"]}
    assert states == {
        "scan00": "labelled", "scan01": "accepted", "scan02": "later", "scan03": "left_out"
    }  # fmt: skip
    assert content["classes"][1]["terminology"] == "tumour"
    run("undo", place, "scan01")
    run("take-in", place, "scan03")
    _, out, _ = run("status", place)
    assert "1 labelled, 2 open, 1 later" in out
    run("train", place, "--seconds", 60, "--foreground", "--device", "none")
    assert Campaign.open(place).settings.training_seconds == 60


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("accept", "CAMPAIGN", "scan09"), "There is no scan 'scan09' in this campaign."),
        (("accept", "CAMPAIGN", "scan00"), "has no draft and no prediction"),
        (("accept", "CAMPAIGN", "scan00", "gone.nii"), "There is no file 'gone.nii'"),
        (("undo", "CAMPAIGN", "scan00"), "is not accepted"),
        (("predict", "CAMPAIGN"), "There is no model yet"),
        # In the foreground, so that the tests that follow are not run at a low priority.
        (("train", "CAMPAIGN", "--foreground"), "Two patients at least must be labelled"),
        (("export", "CAMPAIGN", "nnunet", "-o", "out"), "No scan is accepted yet"),
        (("export", "CAMPAIGN", "model", "-o", "a.pumit.zip"), "There is no model yet"),
        (("status", "nowhere"), "There is no folder 'nowhere'"),
    ],
)
def test_bad_input_is_one_line(run, make_campaign, arguments, sentence):
    campaign = make_campaign(1)
    given = [str(campaign.folder) if a == "CAMPAIGN" else a for a in arguments]
    status, _, err = run(*given)
    assert status == 2
    assert err.count("\n") == 1
    assert sentence in err


def test_exports_are_read_again(run, make_campaign, tmp_path):
    from pumit.training.data.labelled_set import cases_of_folder

    campaign = make_campaign(3, 2)
    campaign.accept(campaign.scans()[2], None, "Ada", clicks=3, seconds=60)
    for kind in ("nnunet", "msd"):
        status, _, err = run("export", campaign.folder, kind, "-o", tmp_path / kind)
        assert status == 0, err
        found = cases_of_folder(tmp_path / kind)
        assert len(found.data.cases) == 3
        assert [c.label.name for c in found.data.classes] == ["outer", "inner"]
        assert not found.problems
        again = Campaign.create(tmp_path / f"again-{kind}", [tmp_path / kind])
        assert [s.state for s in again.scans()] == ["labelled"] * 3
    status, _, err = run("export", campaign.folder, "page", "-o", tmp_path / "page.html")
    assert status == 0, err
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "were accepted in it" in page
    assert "Ada" in page
    assert "scan00" not in page


def test_a_question_about_a_name_shows_the_command(run, make_campaign):
    folder = make_campaign(2, 1, classes=["outer"]).folder
    for action in ("status", "next"):
        assert (
            "Say what '2' is (1 scan): pumit campaign name FOLDER NAME CLASS"
            in run(action, folder)[1]
        )


def test_without_classes_it_says_how_to_add_one(run, make_campaign, truth_of, tmp_path):
    campaign = make_campaign(2, classes=[])
    label = tmp_path / "a.seg.nrrd"
    write_segmentation(truth_of(campaign.scan("scan00"), ["LA"]), label)
    accept = ("accept", campaign.folder, "scan00", label)
    assert "say which it is (`pumit campaign name FOLDER 'LA' CLASS`)" in run(*accept)[2]
    refused = run("name", campaign.folder, "LA", "atrium")[2]
    assert "`pumit campaign name FOLDER 'atrium' 'atrium'` adds it." in refused
    for name in ("atrium", "LA"):
        assert run("name", campaign.folder, name, "atrium")[0] == 0
    assert "scan00: accepted" in run(*accept)[1]


def test_a_campaign_that_cannot_be_made_is_named(run, make_folder, tmp_path):
    (tmp_path / "file").touch()
    status, _, err = run("new", tmp_path / "file" / "mine", make_folder(1))
    assert status == 2
    assert "Cannot make the folder mine:" in err


def test_accepting_again_after_undo_keeps_what_it_took(run, make_campaign, tmp_path, truth_of):
    campaign = make_campaign(2)
    scan = campaign.scans()[0]
    campaign.accept(scan, truth_of(scan), "Ada", clicks=3, seconds=20)
    folder = str(campaign.folder)
    assert run("undo", folder, scan.name)[0] == 0
    assert run("accept", folder, scan.name)[0] == 0
    now = campaign.scan(scan.id)
    assert (now.clicks, now.seconds) == (3, 20.0)
    for option, seconds in (("--seconds", 5), ("--took", 6)):
        assert run("accept", folder, scan.name, option, seconds)[0] == 0
        assert campaign.scan(scan.id).seconds == seconds


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("accept", "a", "scan00", "--empty", "--clicks", "-3"), "of at least 0, got '-3'"),
        (("accept", "a", "scan00", "--empty", "--took", "nan"), "of at least 0, got 'nan'"),
        (("new", "a", "b", "--seconds", "nan"), "of at least 0, got 'nan'"),
        (("new", "a", "b", "--seconds", "0"), "above 0, got '0'"),
        (("new", "a", "b", "--train-after", "0"), "of at least 1, got '0'"),
    ],
)
def test_numbers_that_no_campaign_can_keep_are_refused(capsys, arguments, sentence):
    with pytest.raises(SystemExit, match="2"):
        main(["campaign", *arguments])
    assert sentence in capsys.readouterr().err
