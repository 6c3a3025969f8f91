"""Hand-derived values, identities and mechanisms of SCAFFOLD."""

from pathlib import Path
from typing import Any

import pytest

from fedtailor.learning.settings import Exponential
from fedtailor.methods import Client, Payload, find
from fedtailor.runs.store import Store
from tests.support.problem import HERE, Listening, W, make, near, play, targets


def test_hand_scaffold(tmp_path: Path) -> None:
    """Two steps y <- y - ((y - a) + c - c_i)/2, so K eta = 1; clients count alike and N = 2.

    Round 1 from x = 1, c = c_i = 0: y = 1/4 and 13/4, c_i = 3/4 and -9/4; x = 7/4, c = (3/4 - 9/4)/2 = -3/4.
    Round 2, client 0, c - c_0 = -3/2: y = 1.625, 1.5625; change of c_0: 0.1875 + 0.75 = 0.9375, c_0 = 1.6875.
    Client 1, c - c_1 = 3/2: y = 2.125, 2.3125; change -0.5625 + 0.75 = 0.1875, c_1 = -2.0625.
    x = 1.9375, c = -3/4 + (0.9375 + 0.1875)/2 = -0.1875.
    """
    listening = Listening("scaffold")
    played = play(tmp_path / "run", listening.method, targets(*HERE), epochs=2)
    assert [listening.value(1, c) for c in (0, 1)] == near(0.25, 3.25)
    assert [listening.value(1, c, "model/control") for c in (0, 1)] == near(0.75, -2.25)
    assert [listening.value(2, c) for c in (0, 1)] == near(1.5625, 2.3125)
    assert [listening.value(2, c, "model/control") for c in (0, 1)] == near(0.9375, 0.1875)
    assert [float(played.state(c)["c"][W]) for c in (0, 1)] == near(1.6875, -2.0625)
    assert float(played.loop.server.state["c"][W]) == pytest.approx(-0.1875, abs=1e-6)
    assert played.server(W) == pytest.approx(1.9375, abs=1e-6)


def test_hand_scaffold_with_a_server_rate_of_two(tmp_path: Path) -> None:
    """x = 1 + 2 (7/4 - 1) = 5/2; c as before."""
    played = play(tmp_path / "run", make("scaffold", eta_g=2.0), targets(*HERE), rounds=1, epochs=2)
    assert played.server(W) == pytest.approx(2.5, abs=1e-6)
    assert float(played.loop.server.state["c"][W]) == pytest.approx(-0.75, abs=1e-6)


def test_scaffolds_control_variate_knows_the_learning_rate_of_the_round(tmp_path: Path) -> None:
    """One client at target 0, two steps, lr 1/2 and then 1/4: x = 1 -> 1/4 -> (9/16)/4 = 0.140625.

    c_0 = (1/4 - 0.140625) / (2 * 1/4) = 0.21875; with K counted as one epoch or lr 1/2 it would be half or twice that.
    """
    schedule = Exponential(kind="exponential", gamma=0.5)
    played = play(tmp_path / "run", make("scaffold"), targets([0.0]), epochs=2, schedule=schedule)
    assert played.server(W) == pytest.approx(0.140625, abs=1e-6)
    assert float(played.state(0)["c"][W]) == pytest.approx(0.21875, abs=1e-6)


def test_scaffold_counts_steps_and_not_epochs(tmp_path: Path) -> None:
    """Client 1 with batches of one takes 3 steps in an epoch: (1 - 29/8) / (3 * 1/2) = -1.75."""
    played = play(tmp_path / "run", make("scaffold"), targets(*HERE), rounds=1, batch_size=1)
    assert float(played.state(1)["c"][W]) == pytest.approx(-1.75, abs=1e-6)


def test_scaffolds_control_variate_is_a_mean_of_gradients_with_momentum_too(tmp_path: Path) -> None:
    """Momentum 1/2: gradients 1 and 1/2 enter with the factors 3/2 and 1: c_0 = 2 / 2.5; divided by K it were 1."""
    played = play(tmp_path / "run", make("scaffold"), targets([0.0]), rounds=1, epochs=2, momentum=0.5)
    assert float(played.state(0)["c"][W]) == pytest.approx(0.8, abs=1e-6)


@pytest.mark.parametrize("batch_size", [1, 1000])
def test_scaffold_of_one_client_is_fedavg_of_one_client(batch_size: int, tmp_path: Path) -> None:
    one: dict[str, Any] = {"rounds": 4, "epochs": 2, "lr": 0.2, "batch_size": batch_size}
    data = targets([1.0, 2.0, 6.0])
    fedavg = play(tmp_path / "1", make("fedavg"), data, **one)
    assert play(tmp_path / "2", make("scaffold"), data, **one).server(W) == pytest.approx(fedavg.server(W), abs=1e-6)
    other = play(tmp_path / "3", make("scaffold", eta_g=0.5), data, **one)
    assert abs(other.server(W) - fedavg.server(W)) > 0.01


def test_scaffolds_server_holds_the_mean_of_the_clients_control_variates(tmp_path: Path) -> None:
    """Under full participation always; after one participant of two, half of its control variate."""
    full = play(tmp_path / "1", make("scaffold"), targets(*HERE), rounds=5, epochs=2, lr=0.1, batch_size=1)
    mean = sum(float(full.state(c)["c"][W]) for c in (0, 1)) / 2
    assert float(full.loop.server.state["c"][W]) == pytest.approx(mean, abs=1e-6)
    assert abs(mean) > 1e-3
    part = play(tmp_path / "2", make("scaffold"), targets(*HERE), rounds=1, participation={"clients": 1})
    (client,) = part.store.state_keys("client")
    own = float(part.state(int(client))["c"][W])
    assert float(part.loop.server.state["c"][W]) == pytest.approx(own / 2, abs=1e-6)
    assert own != 0


def test_scaffold_takes_the_mean_over_those_who_answered(tmp_path: Path) -> None:
    """PFLlib divides by those who were asked. Client 1 fails: x = y_0 = 1/4, c = c_0 / N = 3/8, and c_1 is not kept."""

    class Failing(find("scaffold")):  # type: ignore[misc]
        name = ""

        def upload(self, client: Client) -> Payload:
            if client.id == 1:
                raise RuntimeError("the line is cut")
            return super().upload(client)  # type: ignore[no-any-return]

    played = play(tmp_path / "run", Failing(), targets(*HERE), rounds=1, epochs=2)
    assert played.server(W) == pytest.approx(0.25, abs=1e-6)
    assert float(played.loop.server.state["c"][W]) == pytest.approx(0.375, abs=1e-6)
    assert played.store.state_keys("client") == ["0"]


def test_scaffold_does_as_many_steps_as_fedavg(tmp_path: Path) -> None:
    """FL-bench takes one batch per epoch; and its c_i stay zero for ever, which the hand-derived values exclude."""
    for name in ("fedavg", "scaffold"):
        play(tmp_path / name, make(name), targets(*HERE), batch_size=2, epochs=3)
    steps = [_steps(tmp_path / name) for name in ("fedavg", "scaffold")]
    assert steps[0] == steps[1] == [3, 6, 3, 6]


def _steps(folder: Path) -> list[int]:
    with Store(folder) as store:
        return [row["steps"] for row in store.rows("SELECT steps FROM tasks ORDER BY round, client")]


def test_scaffold_removes_the_drift_that_fedavg_settles_in(tmp_path: Path) -> None:
    """1 and 3 steps of a half: FedAvg settles where drifts balance, SCAFFOLD at the mean target 2 of clients that
    count alike. With the sign of pfl-research's c_i the drift would grow."""
    many: dict[str, Any] = {"rounds": 60, "batch_size": 1}
    scaffold = play(tmp_path / "1", make("scaffold"), targets([0.0], [4.0] * 3), **many)
    alike = play(tmp_path / "2", make("fedavg"), targets([0.0] * 3, [4.0] * 3), **many)
    fedavg = play(tmp_path / "3", make("fedavg"), targets(*HERE), **many)
    assert scaffold.server(W) == pytest.approx(2.0, abs=1e-4)
    assert [float(scaffold.state(c)["c"][W]) for c in (0, 1)] == pytest.approx([2.0, -2.0], abs=1e-3)
    assert alike.server(W) == pytest.approx(2.0, abs=1e-4)
    assert fedavg.server(W) == pytest.approx(3.36, abs=1e-4)  # where w = w/8 + 3/4 (4 - (4 - w)/8); its optimum is 3
