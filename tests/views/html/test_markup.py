"""Markup: every text is escaped, whatever it holds."""

import json
import math
import re

from hypothesis import given
from hypothesis import strategies as st

from fedtailor.views.html.markup import Html, data_block, element, joined, standard, table, whole_page
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
    text = whole_page("<t>", element("main", "x"), ("charts.js",))
    assert "<title>&lt;t&gt;</title>" in text
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert "default-src &#x27;none&#x27;" in policy[1]
    assert "unsafe-inline" not in policy[1]
    assert re.search(r'(src|href)="?https?:', text) is None
