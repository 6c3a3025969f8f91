"""The experiment that ``fedtailor new`` writes."""

import tomllib

from fedtailor.runs import experiment
from fedtailor.views.starter import starter


def test_the_template_is_an_experiment_and_says_how_to_use_own_data() -> None:
    text = starter("mine.toml")
    assert experiment(tomllib.loads(text)).data.clients == 20
    assert 'kind = "given"' in text
    for line in ('# source = "folder"', '# folder = "my-data"', "remove clients and [data.partition]"):
        assert line in text


def test_the_template_with_its_comments_about_own_data_is_an_experiment() -> None:
    """A user removes the "# " in front of source, folder and label, and what the comment says."""
    text = starter("mine.toml")
    table = text[text.index("\n[data.partition]") : text.index("# [data.split]")]
    mine = text.replace(table, "").replace('source = "digits"', "", 1).replace("clients = 20\n", "", 1)
    for name in ("source", "folder", "label"):
        mine = mine.replace(f"# {name} = ", f"{name} = ", 1)
    data = experiment(tomllib.loads(mine)).data
    assert (data.source, str(data.folder), data.partition, data.clients) == ("folder", "my-data", None, None)
