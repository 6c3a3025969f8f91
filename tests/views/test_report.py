"""The texts of a report."""

from fedtailor.views.report import method_text


def test_a_line_about_a_method_leaves_the_tables_of_its_agents_out() -> None:
    assert method_text({"name": "fedprox", "mu": 0.1}) == "fedprox (mu=0.1)"
    assert method_text({"name": "bwa", "alpha": 64.0, "agents": {"adjustment": {"epochs": 10}}}) == "bwa (alpha=64.0)"
    assert method_text({"name": "local"}) == "local"
