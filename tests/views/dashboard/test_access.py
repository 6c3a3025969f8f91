"""Who may read the dashboard."""

from base64 import b64encode

import pytest

from fedtailor.errors import UserError
from fedtailor.views.dashboard.access import TOKEN, Access

HERE = {"Host": "127.0.0.1:8600"}


def basic(password: str) -> dict[str, str]:
    return {**HERE, "Authorization": "Basic " + b64encode(f"me:{password}".encode()).decode()}


def test_the_token_is_needed_and_is_that_of_the_port() -> None:
    access = Access()
    assert access.admits({"Cookie": f"fedtailor-8600={access.token}"}, 8600)
    for cookie in (
        "",
        "fedtailor-8600=",
        f"fedtailor-8601={access.token}",
        "fedtailor-8600=é",
        f"x={access.token}",
        "=;=",
    ):
        assert not access.admits({"Cookie": cookie}, 8600)
    assert Access().token != access.token


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
    assert Access().foreign(headers)


@pytest.mark.parametrize(
    "headers",
    [HERE, {"Host": "localhost:1"}, {"Host": "[::1]:8600"}, {**HERE, "Origin": "http://127.0.0.1:8600"}],
)
def test_this_origin_is_not_foreign(headers: dict[str, str]) -> None:
    assert not Access().foreign(headers)


def test_other_machines_need_a_long_password() -> None:
    with pytest.raises(UserError, match="FEDTAILOR_PASSWORD"):
        Access("0.0.0.0")
    with pytest.raises(UserError, match="at least 12"):
        Access("0.0.0.0", "short")
    access = Access("0.0.0.0", "long enough it is")
    assert access.admits(basic("long enough it is"), 1)
    for headers in (
        basic("long enough it i"),
        basic(""),
        {},
        {"Authorization": "Basic %%"},
        {"Authorization": "Basic /w=="},
    ):
        assert not access.admits(headers, 1)
    assert not access.is_token(access.token)


def test_a_command_needs_our_origin_and_the_token_of_the_page() -> None:
    access = Access()
    good = {**HERE, "Origin": "http://127.0.0.1:8600", TOKEN: access.page_token}
    assert access.commands(good)
    assert access.page_token != access.token
    for wrong in (
        {TOKEN: ""},
        {TOKEN: access.token},
        {"Origin": ""},
        {"Origin": "http://127.0.0.1:9"},
        {"Host": "evil"},
    ):
        assert not access.commands({**good, **wrong})
    assert not access.commands({key: value for key, value in good.items() if key != "Origin"})
