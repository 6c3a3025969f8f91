from fedtailor.views.panels.kinds import COLUMNS, FRAMES, NUMBERS, ROWS, Frame, heat, table_over_rounds


def test_many_rounds_are_thinned_and_the_note_says_so() -> None:
    frames = [Frame(f"round {n}", [[1.0]], ["a"], ["b"]) for n in range(1, 1001)]
    panel = heat("title", "Words.", frames, x="x", y="y")
    assert [panel["frames"][0]["name"], panel["frames"][-1]["name"]] == ["round 1", "round 1000"]
    assert len(panel["frames"]) == FRAMES
    assert panel["note"] == f"Words. {FRAMES} of 1000 rounds, evenly spaced."
    assert heat("title", "Words.", frames[:3], x="x", y="y")["note"] == "Words."


def test_large_tables_leave_fewer_rounds() -> None:
    row = [0.5] * 100
    frames = [Frame(str(n), [row] * 100, ["a"] * 100, ["b"] * 100) for n in range(50)]
    kept = heat("", "", frames, x="", y="")["frames"]
    assert len(kept) * 100 * 100 == NUMBERS


def test_a_table_over_rounds_has_gaps_where_a_client_took_no_part() -> None:
    frame = table_over_rounds({7: {1: 0.5}, 2: {1: 0.25, 3: 0.75}}, lambda client: f"<{client}>")  # type: ignore[arg-type]
    assert (list(frame.down), list(frame.across)) == (["<2>", "<7>"], ["1", "3"])
    assert frame.rows == [[0.25, 0.75], [0.5, None]]
    many = table_over_rounds({k: dict.fromkeys(range(900), 1.0) for k in range(900)}, str)  # type: ignore[arg-type]
    assert (len(many.down), len(many.across)) == (ROWS, COLUMNS)
