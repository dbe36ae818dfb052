"""A recipe's keys are checked as a whole, without its data."""

import io
import json
import re

from pumit.training.validate import answer

SAID = {  # of a recipe as text
    "data: {folder: x}\nplan: {batch_size: 2}\nschedule: {steps: 10}": "^$",
    "task: promptable\ndata: {folder: x}\npart: decoder": "^$",
    "task: promptable\ndata: {folder: x}\npart: head": "decoder",
    "task: cook": "promptable",
    "data: {folder: x}\nschedule: {stepz: 1}": "steps",
    "data: {folders: [{folder: x, leave_ou: []}]}": "leave_out",
    "data: {folders: [x]}": "folders, number 1",
    "data: {folders: [{}]}": "folders, number 1 needs the key folder",
    "data: {folder: x}\nplan: 3": "plan",
    "data: 3": "data",
    "data: [": ".",
    "- a": ".",
}


def test_a_text_is_answered_in_a_sentence_with_the_right_key():
    said = io.StringIO()
    answer(io.StringIO("".join(json.dumps(text) + "\n" for text in SAID)), said)
    problems = [json.loads(line)["problem"] for line in said.getvalue().splitlines()]
    for problem, (text, words) in zip(problems, SAID.items(), strict=True):
        assert re.search(words, problem), (text, problem)
        assert "\n" not in problem
