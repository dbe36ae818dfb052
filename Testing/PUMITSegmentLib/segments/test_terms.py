import json

import pytest
import slicer
from pumit.export.terminology import concept_for
from pumit.structures.names import meaning_key, requested_structure
from PUMITSlicerLib.terms import TermSearch, assignTerm, hasCode, meaningOf, newSegment


@pytest.fixture
def search(scene):
    return TermSearch()


@pytest.fixture
def bare_search(scene):
    """As in a Slicer whose terminology files are gone."""
    return TermSearch(slicer.vtkSlicerTerminologiesModuleLogic())


@pytest.fixture
def segmentation_node(scene):
    node = scene.AddNewNodeByClass("vtkMRMLSegmentationNode")
    node.CreateDefaultDisplayNodes()
    return node


@pytest.fixture
def misreading_search(scene, tmp_path):
    """A list whose type without modifiers Slicer takes for one that has some.

    Slicer reads past the members of such a type: what stands there in memory decides. Here it is
    the long key of the next type, with a 4 (a list) where the kind of a value would stand.
    """

    def coded(value: str, meaning: str) -> dict[str, object]:
        return {"CodingSchemeDesignator": "SCT", "CodeValue": value, "CodeMeaning": meaning}

    plain = {**coded("32457005", "Body fluid"), "recommendedDisplayRGBValue": [170, 250, 250]}
    after = {f"{'a' * 30}\x04\x00": 1, **coded("70925003", "Bile")}
    category = {**coded("91720002", "Body Substance"), "showAnatomy": "no", "Type": [plain, after]}
    schemas = "https://raw.githubusercontent.com/qiicr/dcmqi/master/doc"
    document = {
        "@schema": f"{schemas}/segment-context-schema.json#",
        "SegmentationCategoryTypeContextName": "misread",
        "SegmentationCodes": {"Category": [category]},
    }
    path = tmp_path / "misread.term.json"
    path.write_text(json.dumps(document))
    logic = slicer.vtkSlicerTerminologiesModuleLogic()
    assert logic.LoadTerminologyFromFile(str(path))
    return TermSearch(logic)


def code(term) -> str:
    return concept_for(term.entry).type.value


def test_name_of_an_organ_comes_first(search):
    liver = search.search("liver")[0]
    assert (liver.name, code(liver)) == ("Liver", "10200004")
    lung, *others = search.search("lung")
    assert lung.name == "Lung"
    assert "Upper lobe of lung" in [term.name for term in others]


def test_words_are_found_in_any_order_and_case(search):
    for text in ("kidney left", "LEFT kidney", "left kid"):
        first = search.search(text)[0]
        meaning = concept_for(first.entry)
        assert first.name == "Left kidney"
        assert (meaning.type.value, meaning.type_modifier.value) == ("64033007", "7771000")


def test_everyday_names_and_codes_are_found(search):
    assert search.search("urinary bladder")[0].name == "Bladder"
    assert "Liver" in [term.name for term in search.search("10200004")]


def test_names_of_the_clinic_find_their_code(search, bare_search):
    for place in (search, bare_search):  # one after the other: the lists of one are kept
        for text, name, value in (
            ("LV", "Left ventricle", "87878005"),
            ("GTV", "Gross tumor volume", "228791009"),
            ("peripheral zone", "Peripheral zone", "279706003"),
            ("vertebra L3", "L3 vertebra", "36470004"),
            ("L3", "L3 vertebra", "36470004"),
        ):
            first = place.search(text)[0]
            assert (first.name, code(first)) == (name, value)


def test_lesion_in_an_organ_keeps_both_codes(search):
    meaning = concept_for(search.search("right kidney cyst")[0].entry)
    assert meaning.type.meaning == "Cyst"
    assert meaning.anatomic_region.value == "64033007"
    assert meaning.region_modifier.meaning == "Right"


def test_nonsense_finds_nothing_and_nothing_typed_shows_the_common(search):
    assert search.search("xyzzy") == []
    assert search.search(" ")[0].name == "Liver"
    assert len(search.common()) == len({term.entry for term in search.common()})


def test_every_loaded_term_is_an_entry_that_export_reads(search):
    terms = search.search("a", limit=10_000)
    assert len(terms) > 500
    assert len({meaningOf(term.entry) for term in terms}) == len(terms)
    for term in terms:
        assert concept_for(term.entry).type.value
        assert all(0 <= part <= 1 for part in term.colorRgb)


def test_slicer_reads_its_own_entry_back(search):
    logic = slicer.modules.terminologies.logic()
    for term in search.common():
        entry = slicer.vtkSlicerTerminologyEntry()
        assert logic.DeserializeTerminologyEntry(term.entry, entry)
        assert entry.GetTypeObject().GetCodeValue() == code(term)


def test_bundled_table_serves_where_slicers_lists_are_absent(bare_search):
    assert bare_search.search("liver")[0].name == "Liver"
    assert bare_search.named("left lung") is not None
    assert concept_for(bare_search.generic().entry).type.meaning == "Tissue"
    assert [t.name for t in bare_search.common()]


def test_segment_named_as_an_organ_is_coded_as_one(segmentation_node):
    segmentID = newSegment(segmentation_node, "spleen")
    segment = segmentation_node.GetSegmentation().GetSegment(segmentID)
    assert segment.GetName() == "spleen"
    assert concept_for(segment.GetTerminology()).type.meaning == "Spleen"
    assert hasCode(segment)


def test_segment_of_any_other_name_is_tissue_without_a_code(segmentation_node):
    for name in ("", "Läsion 3 ~^|", "x" * 100):
        segmentID = newSegment(segmentation_node, name)
        assert not hasCode(segmentation_node.GetSegmentation().GetSegment(segmentID))


def test_successive_segments_have_names_and_colours_of_their_own(segmentation_node, search):
    segmentation = segmentation_node.GetSegmentation()
    term = search.named("liver")
    segments = [segmentation.GetSegment(newSegment(segmentation_node, term=term)) for _ in range(6)]
    assert [s.GetName() for s in segments[:3]] == ["Liver", "Liver 2", "Liver 3"]
    assert segments[0].GetColor() == pytest.approx(term.colorRgb)
    colours = [s.GetColor() for s in segments]
    for i, first in enumerate(colours):
        for second in colours[i + 1 :]:
            assert max(abs(a - b) for a, b in zip(first, second, strict=True)) > 0.1


def test_assigning_a_term_keeps_what_somebody_chose(segmentation_node, search):
    segmentation = segmentation_node.GetSegmentation()
    unnamed = newSegment(segmentation_node)
    named = newSegment(segmentation_node, "My own")
    segmentation.GetSegment(named).SetColor(0.1, 0.2, 0.3)
    segmentation.GetSegment(named).SetColorAutoGenerated(False)
    for segmentID in (unnamed, named):
        assignTerm(segmentation_node, segmentID, search.named("pancreas"))
    first, second = segmentation.GetSegment(unnamed), segmentation.GetSegment(named)
    assert (first.GetName(), second.GetName()) == ("Pancreas", "My own")
    assert second.GetColor() == (0.1, 0.2, 0.3)
    assert first.GetTerminology() == second.GetTerminology()


def test_term_without_a_recommended_colour_leaves_the_colour(segmentation_node, search):
    segment_id = newSegment(segmentation_node)
    segment = segmentation_node.GetSegmentation().GetSegment(segment_id)
    before = segment.GetColor()
    found = next(t for t in search.search("neoplasm", limit=50) if len(set(t.colorRgb)) == 1)
    assignTerm(segmentation_node, segment_id, found)
    assert segment.GetColor() == before
    assert found.entry in segment.GetTerminology()


def test_segments_without_a_term_have_slicers_colours_in_its_order(segmentation_node):
    segmentation = segmentation_node.GetSegmentation()
    colors = [segmentation.GetSegment(newSegment(segmentation_node)).GetColor() for _ in range(14)]
    assert [round(255 * part) for part in colors[0]] == [128, 174, 128]
    assert [round(255 * part) for part in colors[1]] == [241, 214, 145]
    assert len(set(colors)) == 14


def test_type_whose_modifiers_slicer_misreads_is_found_without_an_error(misreading_search):
    assert misreading_search.search("body fluid")[0].name == "Body fluid"
    assert "Bile" in [term.name for term in misreading_search.search("bile")]


def test_neighbours_in_the_abdomen_can_be_told_apart(segmentation_node):
    """Friction 5: liver, aorta and right kidney were all brick red."""
    segmentation = segmentation_node.GetSegmentation()
    names = ("Liver", "Aorta", "Right kidney", "Spleen", "Pancreas")
    colors = [segmentation.GetSegment(newSegment(segmentation_node, n)).GetColor() for n in names]
    for number, color in enumerate(colors):
        for other in colors[:number]:
            assert max(abs(a - b) for a, b in zip(color, other, strict=True)) >= 0.2


def test_the_field_of_a_segment_and_find_understand_the_same_words(search):
    for text in (
        *("gall bladder", "L3", "GTV", "tumour", "left ventricle", "LV", "kidneys", "lt kidney"),
        *("kidney, left", "the liver", "oesophagus", "LEFT_KIDNEY", "liver metastases", "IVC"),
    ):
        assert search.isSure(text), text
        (meaning,) = requested_structure(text).meanings
        assert meaning_key(concept_for(search.search(text, 1)[0].entry)) == meaning_key(meaning)
