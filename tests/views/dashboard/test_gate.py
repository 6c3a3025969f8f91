"""Who may read the dashboard."""

from base64 import b64encode

import pytest

from fedtailor.errors import UserError
from fedtailor.views.dashboard.gate import TOKEN, Gate

HERE = {"Host": "127.0.0.1:8600"}


def basic(password: str) -> dict[str, str]:
    return {**HERE, "Authorization": "Basic " + b64encode(f"me:{password}".encode()).decode()}


def test_the_token_is_needed_and_is_that_of_the_port() -> None:
    gate = Gate()
    assert gate.admits({"Cookie": f"fedtailor-8600={gate.token}"}, 8600)
    for cookie in ("", "fedtailor-8600=", f"fedtailor-8601={gate.token}", "fedtailor-8600=é", f"x={gate.token}", "=;="):
        assert not gate.admits({"Cookie": cookie}, 8600)
    assert Gate().token != gate.token


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example:8600"},
        {"Host": ""},
        {**HERE, "Origin": "http://evil.example"},
        {**HERE, "Origin": "http://127.0.0.1:9999"},
        {**HERE, "Origin": "null"},
        {**HERE, "Sec-Fetch-Site": "cross-site"},
        {**HERE, "Sec-Fetch-Site": "same-site"},
    ],
)
def test_other_origins_and_names_are_foreign(headers: dict[str, str]) -> None:
    assert Gate().foreign(headers)


@pytest.mark.parametrize(
    "headers",
    [HERE, {"Host": "localhost:1"}, {"Host": "[::1]:8600"}, {**HERE, "Origin": "http://127.0.0.1:8600"}],
)
def test_this_origin_is_not_foreign(headers: dict[str, str]) -> None:
    assert not Gate().foreign(headers)


def test_other_machines_need_a_long_password() -> None:
    with pytest.raises(UserError, match="FEDTAILOR_PASSWORD"):
        Gate("0.0.0.0")
    with pytest.raises(UserError, match="at least 12"):
        Gate("0.0.0.0", "short")
    gate = Gate("0.0.0.0", "long enough it is")
    assert gate.admits(basic("long enough it is"), 1)
    for headers in (
        basic("long enough it i"),
        basic(""),
        {},
        {"Authorization": "Basic %%"},
        {"Authorization": "Basic /w=="},
    ):
        assert not gate.admits(headers, 1)
    assert not gate.is_token(gate.token)


def test_a_command_needs_our_origin_and_the_token_of_the_page() -> None:
    gate = Gate()
    good = {**HERE, "Origin": "http://127.0.0.1:8600", TOKEN: gate.page_token}
    assert gate.commands(good)
    assert gate.page_token != gate.token
    for wrong in ({TOKEN: ""}, {TOKEN: gate.token}, {"Origin": ""}, {"Origin": "http://127.0.0.1:9"}, {"Host": "evil"}):
        assert not gate.commands({**good, **wrong})
    assert not gate.commands({key: value for key, value in good.items() if key != "Origin"})
