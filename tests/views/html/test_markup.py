"""Markup: every text is escaped, whatever it holds."""

import json
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtailor.views.html.markup import Html, asset, data_block, element, joined, standard, table, whole_page
from fedtailor.views.tables import Grid


def test_texts_are_escaped_and_markup_is_not() -> None:
    inner = element("b", "<i>")
    assert inner == "<b>&lt;i&gt;</b>"
    assert element("p", inner, " & ", None, 3) == "<p><b>&lt;i&gt;</b> &amp; 3</p>"
    assert element("a", "x", href='"><script>') == '<a href="&quot;&gt;&lt;script&gt;">x</a>'
    assert element("div", data_x=1, class_="c", id=None) == '<div data-x="1" class="c"></div>'
    assert isinstance(joined("<"), Html)


@given(st.text())
def test_a_document_in_a_page_is_what_it_was_and_cannot_end_its_block(text: str) -> None:
    block = data_block({text: [text]})
    inner = block.partition(">")[2].removesuffix("</script>")
    assert "<" not in inner
    assert json.loads(inner) == {text: [text]}


def test_numbers_that_json_lacks_are_none_and_others_have_five_figures() -> None:
    assert standard({"a": [math.nan, math.inf, 0.1234567], 1: (2,)}) == {"a": [None, None, 0.12346], "1": [2]}


def test_a_table_escapes_names_and_marks_what_is_decided() -> None:
    grid = Grid(("method", "decided"), (("<b>", "ahead"), ("x", "not decidable")), frozenset({0, 1}), notes=("a < b",))
    text = table(grid, badges=1)
    assert "&lt;b&gt;" in text
    assert '<span class="badge ahead">ahead</span>' in text
    assert '<span class="badge not">not decidable</span>' in text
    assert "a &lt; b" in text


def test_a_page_runs_its_own_script_and_loads_nothing() -> None:
    text = whole_page("<t>", element("main", "x"), ("base.js",))
    assert "<title>&lt;t&gt;</title>" in text
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert "default-src &#x27;none&#x27;" in policy[1]
    assert "unsafe-inline" not in policy[1]
    assert re.search(r'(src|href)="?https?:', text) is None


LINEAR_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
# How people without red and without green receptors see linear colours (Machado et al., 2009).
SEEN = {
    "all": np.eye(3),
    "protan": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.052]]
    ),
    "deutan": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]]
    ),
}


def lab(colour: str, seen: str) -> np.ndarray:
    """A colour in CIELAB, where distances are those that people see."""
    given = np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    linear = np.where(given <= 0.04045, given / 12.92, ((given + 0.055) / 1.055) ** 2.4)
    x, y, z = np.cbrt(np.clip(SEEN[seen] @ linear, 0.0, 1.0) @ LINEAR_XYZ.T / (0.9505, 1, 1.089))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("seen", SEEN)
def test_the_colours_of_curves_differ_for_every_kind_of_sight(seen: str) -> None:
    found = re.findall(r"--c\d: (#[0-9a-f]{6});", asset("style.css"))
    assert len(found) == 24  # light, dark, print
    for palette in (found[:8], found[8:16], found[16:]):
        places = [lab(colour, seen) for colour in palette]
        distances = [np.linalg.norm(a - b) for k, a in enumerate(places) for b in places[:k]]
        assert min(distances) > 15
