"""What every partition and split promises, for any labels, clients and seed."""

from dataclasses import replace
from math import exp, lgamma
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from fedtailor.data import Column, DataSettings, Federation, Samples, Shares, build
from fedtailor.data import partitions as kinds
from fedtailor.data.splits import carve, official_tests
from fedtailor.data.statistics import label_counts, summary, table
from fedtailor.errors import UserError
from fedtailor.seeding import numpy_stream
from fedtailor.views.partition import draw

KINDS: list[Any] = [
    "iid",
    {"kind": "pathological", "classes": 2},
    {"kind": "dirichlet", "alpha": 0.1},
    {"kind": "dirichlet-clients", "alpha": 0.5, "size": 20},
    {"kind": "groups", "labels": [[0, 1], [1, 2]]},
    {"kind": "one-label", "train": 5, "test": 2},
    {"kind": "mixed", "sigma": 0.5},
    "by-writer",
    "by-domain",
]


def synthetic(**changes: Any) -> DataSettings:
    made = {"samples": 1200, "features": 3, "classes": 6, "clusters": 8}
    return DataSettings.model_validate(
        {"source": "synthetic", "clients": 8, "synthetic": made | changes.pop("synthetic", {}), **changes}
    )


def assert_nobody_shares(federation: Federation) -> None:
    used = np.concatenate([part.indices for part in (federation.train, federation.val, federation.test)])
    assert len(np.unique(used)) == len(used)
    assert len(used) == 0 or 0 <= used.min() <= used.max() < len(federation.samples)


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    split=st.sampled_from(["official", {"train": 0.65, "val": 0.15, "test": 0.2}, {"train": 0.75, "test": 0.25}]),
    seed=st.integers(0, 1000),
    clients=st.integers(1, 8),
    needs_validation=st.booleans(),
)
def test_no_sample_belongs_to_two_clients_or_two_splits(
    kind: Any, split: Any, seed: int, clients: int, needs_validation: bool
) -> None:
    chosen = synthetic(partition=kind, split=split, clients=clients)
    try:
        federation = build(chosen, seed, needs_validation=needs_validation)
    except UserError:
        # six classes do not fit into one or two clients with two classes each, nor two groups into one client
        assert clients <= 2
        assert chosen.partition.kind in {"pathological", "mixed", "groups"}
        return
    assert federation.clients == clients
    assert_nobody_shares(federation)
    assert federation.train.sizes.min() >= 1
    assert federation.test.sizes.min() >= 1
    if needs_validation or (split != "official" and split.get("val") and chosen.partition.kind != "one-label"):
        assert federation.val.sizes.min() >= 1


@settings(max_examples=150, deadline=None)
@given(data=st.data(), classes=st.integers(1, 12), clients=st.integers(1, 40), seed=st.integers(0, 99))
def test_pathological_gives_exactly_this_number_of_labels(data: Any, classes: int, clients: int, seed: int) -> None:
    each = data.draw(st.integers(1, classes))
    sizes = data.draw(st.lists(st.integers(1, 120), min_size=classes, max_size=classes))
    labels = np.random.RandomState(seed).permutation(np.repeat(np.arange(classes) * 3, sizes))
    feasible = (
        clients <= len(labels) and clients * each >= classes and np.minimum(sizes, clients).sum() >= clients * each
    )
    stream = numpy_stream(seed, "test")
    if not feasible:
        with pytest.raises(UserError):
            kinds.pathological(labels, clients, stream, each)
        return
    shares = kinds.pathological(labels, clients, stream, each)
    assert np.array_equal(np.sort(shares.indices), np.arange(len(labels)))
    assert [len(np.unique(labels[shares[client]])) for client in range(clients)] == [each] * clients


def test_pathological_shards_are_equal_for_balanced_classes() -> None:
    labels = np.repeat(np.arange(10), 600)
    shares = kinds.pathological(labels, 100, numpy_stream(0, "test"), 2)
    assert shares.sizes.tolist() == [60] * 100
    pairs = {tuple(np.unique(labels[shares[client]])) for client in range(100)}
    assert len(pairs) > 25  # of 45: classes are mixed, not dealt in a fixed pattern


@pytest.mark.parametrize("alpha", [1e-4, 0.01, 0.3, 100.0])
@pytest.mark.parametrize("clients", [1, 3, 500])
def test_dirichlet_ends_and_keeps_the_minimum_size(alpha: float, clients: int) -> None:
    labels = np.random.RandomState(0).randint(10, size=6000)
    shares = kinds.dirichlet(labels, clients, numpy_stream(1, "test"), alpha, min_size=10)
    assert np.array_equal(np.sort(shares.indices), np.arange(6000))
    assert shares.sizes.min() >= 10


def test_dirichlet_is_more_uneven_for_smaller_alpha_and_fair_to_all_positions() -> None:
    labels = np.repeat(np.arange(100), 200)
    few: list[list[int]] = []
    many: list[list[int]] = []
    last = []
    for seed in range(10):
        for alpha, seen in ((0.1, few), (100.0, many)):
            shares = kinds.dirichlet(labels, 50, numpy_stream(seed, "test"), alpha, 1)
            seen.append([len(np.unique(labels[shares[client]])) for client in range(50)])
        last.append(few[-1][-1])
    assert np.mean(few) < 45
    assert np.mean(many) > 90
    # rounding must not hand the left-overs of every class to the last client
    assert np.mean(last) < 1.5 * np.mean(few)


def test_dirichlet_without_a_minimum_serves_ten_thousand_clients() -> None:
    labels = np.random.RandomState(0).randint(10, size=60_000)
    shares = kinds.dirichlet(labels, 10_000, numpy_stream(1, "test"), 0.1)
    assert len(shares) == 10_000
    assert shares.sizes.min() >= 3


def test_dirichlet_clients_gives_one_class_each_at_the_one_end_and_all_at_the_other() -> None:
    labels = np.random.RandomState(0).randint(10, size=60_000)
    kept = {}
    for alpha in (0.001, 100.0):
        shares = kinds.dirichlet_clients(labels, 50, numpy_stream(3, "test"), alpha, 100)
        assert shares.sizes.sum() == 5000
        # a tenth of the clients has 100 / 485 of the mean, a tenth 1000 / 485 of it
        assert sorted(shares.sizes)[:5] == [21] * 5
        assert sorted(shares.sizes)[-5:] == [206] * 5
        counts = np.array([np.bincount(labels[shares[client]], minlength=10) for client in range(50)])
        kept[alpha] = (counts.max(1) / counts.sum(1)).mean()
        assert np.count_nonzero(counts.sum(0)) >= 9  # the clients draw different classes
    assert kept[0.001] > 0.97
    assert kept[100.0] < 0.25
    with pytest.raises(UserError, match=r"drew \d+ samples of class '\d' but there are \d+: lower data.clients"):
        kinds.dirichlet_clients(labels[:6000], 50, numpy_stream(3, "test"), 0.001, 100)


def test_groups_have_their_own_classes_and_share_the_others_evenly() -> None:
    labels = np.repeat(np.arange(10), 60)
    shares = kinds.groups(labels, 9, np.random.RandomState(0), ((0, 1), (1, 2), (5, 6)))
    found = [np.bincount(labels[shares[client]], minlength=10) for client in range(9)]
    assert [row[[0, 1, 2, 5, 6]].tolist() for row in found] == [[20, 10, 0, 0, 0]] * 3 + [[0, 10, 20, 0, 0]] * 3 + [
        [0, 0, 0, 20, 20]
    ] * 3
    assert sum(row.sum() for row in found) == 5 * 60  # classes that nobody has are not dealt
    with pytest.raises(UserError, match="no class 12"):
        kinds.groups(labels, 9, np.random.RandomState(0), ((0, 12),))
    with pytest.raises(UserError, match="3 groups for 2 clients"):
        kinds.groups(labels, 2, np.random.RandomState(0), ((0,), (1,), (2,)))


def test_one_label_gives_every_client_one_class_and_its_own_counts() -> None:
    partition = {"kind": "one-label", "train": 50, "test": 10}
    federation = build(synthetic(partition=partition, split="official", clients=12), 3)
    assert federation.train.sizes.tolist() == [50] * 12
    assert federation.test.sizes.tolist() == [10] * 12
    counts = label_counts(federation)
    assert np.count_nonzero(counts, axis=1).tolist() == [1] * 12
    assert np.count_nonzero(counts, axis=0).tolist() == [2] * 6
    with pytest.raises(UserError, match=r"one-label needs 3 x 600 samples of class 'class \d'.*lower data.clients"):
        build(synthetic(partition="one-label", clients=18), 3)


def test_mixed_has_the_given_share_of_clients_with_two_classes() -> None:
    labels = np.random.RandomState(0).randint(10, size=5000)
    for sigma, narrow in ((0.0, 0), (0.5, 5), (0.8, 8), (1.0, 10)):
        shares = kinds.mixed(labels, 10, numpy_stream(0, "test"), sigma)
        classes = sorted(len(np.unique(labels[shares[client]])) for client in range(10))
        assert classes == [2] * narrow + [10] * (10 - narrow)
        assert np.array_equal(np.sort(shares.indices), np.arange(5000))
        assert shares.sizes.min() > 300


def test_by_writer_and_by_domain_keep_groups_together() -> None:
    groups = np.random.RandomState(0).randint(3, size=900)
    writers = kinds.by_writer(groups, 2, numpy_stream(0, "test"))
    assert all(len(np.unique(groups[writers[client]])) == 1 for client in range(2))
    with pytest.raises(UserError, match="has 3 writers for 4 clients"):
        kinds.by_writer(groups, 4, numpy_stream(0, "test"))
    domains = kinds.by_domain(groups, 10, numpy_stream(0, "test"), np.array([0.4, 0.4, 0.2]))
    owned = [np.unique(groups[domains[client]]).tolist() for client in range(10)]
    assert owned == [[0]] * 4 + [[1]] * 4 + [[2]] * 2


def test_impossible_wishes_end_in_one_sentence() -> None:
    with pytest.raises(UserError, match="2000 clients cannot share 1200 samples"):
        build(synthetic(clients=2000, partition="iid"), 0)
    with pytest.raises(UserError, match="because the data has only 6: lower"):
        build(synthetic(partition={"kind": "pathological", "classes": 7}), 0)
    with pytest.raises(UserError, match="cannot give 8 clients 200 of 1200 samples"):
        build(synthetic(partition={"kind": "dirichlet", "min_size": 200}), 0)
    with pytest.raises(UserError, match="partition by-writer needs a source with groups"):
        build(DataSettings(partition="by-writer"), 0)
    with pytest.raises(UserError, match="'digits' has no test split of its own"):
        build(DataSettings(split="official"), 0)
    with pytest.raises(UserError, match="partition dirichlet needs class labels"):
        build(synthetic(synthetic={"classes": 0}), 0)
    with pytest.raises(UserError, match=r"unknown data.source 'digts': did you mean 'digits'\?"):
        DataSettings(source="digts")
    with pytest.raises(ValidationError, match="must sum to 1"):
        DataSettings.model_validate({"split": {"train": 0.5, "test": 0.3}})
    with pytest.raises(ValidationError):
        DataSettings.model_validate({"partition": {"kind": "dirichlet", "classes": 2}})


def test_official_test_samples_are_dealt_in_proportion_and_all_of_them() -> None:
    partition = {"kind": "dirichlet", "alpha": 0.5}
    federation = build(synthetic(partition=partition, split="official", val=0.1, synthetic={"clusters": 1}), 0)
    samples = federation.samples
    assert samples.official_test[federation.test.indices].all()
    assert not samples.official_test[federation.train.indices].any()
    assert len(federation.test.indices) == samples.official_test.sum()
    for client in range(federation.clients):
        own = np.concatenate([federation.train[client], federation.val[client]])
        train = np.bincount(samples.y[own], minlength=6)
        test = np.bincount(samples.y[federation.test[client]], minlength=6)
        assert np.abs(test - train * 240 / 960).max() <= 4
        assert not test[train == 0].any()


def test_a_client_whose_class_runs_short_still_gets_a_test_sample() -> None:
    # 6 clients of class 0 but only 6 test samples, which one large client would claim nearly all of
    strata = np.zeros(211, np.int64)
    train = Shares.from_owners(np.r_[np.repeat(0, 200), np.arange(1, 6), np.full(6, -1)], 6)
    tests = official_tests(train, np.arange(205, 211), strata, numpy_stream(0, "test"))
    assert tests.sizes.tolist() == [1] * 6
    with pytest.raises(UserError, match="no sample left of the classes client 5 trains on"):
        official_tests(train, np.arange(206, 211), strata, numpy_stream(0, "test"))


@settings(max_examples=60, deadline=None)
@given(data=st.data(), seed=st.integers(0, 99))
def test_carving_is_exact_in_number_and_proportional_in_strata(data: Any, seed: int) -> None:
    sizes = data.draw(st.lists(st.integers(0, 60), min_size=1, max_size=6))
    shares = Shares.from_owners(np.repeat(np.arange(len(sizes)), sizes), len(sizes))
    strata = np.random.RandomState(seed).randint(3, size=sum(sizes))
    take = np.array([data.draw(st.integers(0, size)) for size in sizes])
    rest, taken = carve(shares, strata, take, numpy_stream(seed, "test"))
    assert taken.sizes.tolist() == take.tolist()
    assert np.array_equal(np.sort(np.r_[rest.indices, taken.indices]), np.sort(shares.indices))
    for client, size in enumerate(sizes):
        have = np.bincount(strata[shares[client]], minlength=3)
        got = np.bincount(strata[taken[client]], minlength=3)
        assert np.abs(got - have * take[client] / max(1, size)).max() < 1 + 1e-9


def test_smallest_clients_get_train_and_test() -> None:
    federation = build(synthetic(partition="iid", clients=600), 0)  # two samples each
    assert federation.train.sizes.tolist() == [1] * 600
    assert federation.test.sizes.tolist() == [1] * 600
    alone = build(synthetic(partition="iid", clients=1200), 0, needs_validation=True)
    assert alone.train.sizes.tolist() == [1] * 1200
    assert not len(alone.test.indices)
    assert not len(alone.val.indices)


def test_digits_by_default_fit_the_demo() -> None:
    federation = build(DataSettings(), 0, needs_validation=True)
    assert federation.clients == 20
    assert len(federation.samples) == 1797
    assert federation.samples.x.shape[1:] == (8, 8, 1)
    assert federation.samples.x.max() == 255
    for part in (federation.train, federation.val, federation.test):
        assert part.sizes.min() >= 1
    sizes = federation.train.sizes + federation.val.sizes
    assert np.abs(federation.val.sizes - 0.15 * sizes).max() <= 1
    assert np.abs(federation.test.sizes - 0.25 * (sizes + federation.test.sizes)).max() <= 0.5


def test_the_same_seed_gives_the_same_federation_everywhere() -> None:
    first, again, other = (build(DataSettings(), seed) for seed in (7, 7, 8))
    assert first.digest() == again.digest() != other.digest()
    own = build(DataSettings(seed=7), 8)
    assert own.digest() == first.digest()
    # Frozen values: a change of these means that every published partition has changed.
    assert first.train[0][:5].tolist() == FROZEN_DIRICHLET
    mixed = kinds.mixed(np.arange(1000) % 10, 10, numpy_stream(0, "frozen"), 0.5)
    assert mixed[3][:5].tolist() == FROZEN_MIXED


def test_at_most_this_number_of_samples_is_taken_in_proportion() -> None:
    limited = build(synthetic(samples=300), 0).samples
    full = build(synthetic(), 0).samples
    assert len(limited) == 300
    assert limited.official_test.sum() == pytest.approx(60, abs=8)
    assert np.abs(np.bincount(limited.y) - np.bincount(full.y) / 4).max() <= 8


def test_a_federation_survives_the_trip_through_arrays() -> None:
    federation = build(synthetic(partition="by-domain"), 0, needs_validation=True)
    arrays = federation.arrays()
    back = Federation.from_arrays(arrays, federation.outline())
    assert back.digest() == federation.digest()
    assert back.samples.x is federation.samples.x
    assert back.train.indices is federation.train.indices
    assert back.samples.group_names == federation.samples.group_names
    assert np.shares_memory(back.train[1], federation.train.indices)
    changed = {**arrays, "x": federation.samples.x.copy()}
    changed["x"][-1, -1] += 1
    assert Federation.from_arrays(changed, federation.outline()).digest() != federation.digest()


def test_columns_and_names_survive_the_trip_through_arrays() -> None:
    one = build(synthetic(clients=3), 0)
    columns = (Column("age"), Column("sex", ("female", "male")), *(Column(f"c{k}") for k in (2,)))
    named = replace(one, samples=replace(one.samples, columns=columns), labels=("anna", "bert", "carl"))
    back = Federation.from_arrays(named.arrays(), named.outline())
    assert (back.samples.columns, back.names) == (columns, ("anna", "bert", "carl"))
    other = replace(named, samples=replace(one.samples, columns=(Column("age", ("old",)), *columns[1:])))
    assert len({one.digest(), named.digest(), other.digest()}) == 3
    with pytest.raises(ValueError, match="3 columns"):
        replace(named.samples, x=named.samples.x[:, :2])


def test_settings_accept_names_and_tables() -> None:
    read = DataSettings.model_validate({"partition": {"kind": "dirichlet", "alpha": 0.3}, "split": "official"})
    assert read.partition == kinds.Dirichlet(alpha=0.3)
    assert DataSettings.model_validate(read.model_dump()) == read
    assert DataSettings.model_validate_json(read.model_dump_json()) == read
    assert DataSettings.model_validate({"partition": "one-label"}).partition == kinds.OneLabel()


def test_the_data_folder_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FEDTAILOR_DATA", str(tmp_path))
    assert DataSettings().directory == tmp_path
    assert DataSettings(dir=tmp_path / "own").directory == tmp_path / "own"
    monkeypatch.delenv("FEDTAILOR_DATA")
    assert DataSettings().directory.parts[-3:] == (".cache", "fedtailor", "data")


def test_synthetic_images_and_regression() -> None:
    images = build(synthetic(synthetic={"image": (4, 5, 3)}), 0).samples
    assert images.x.dtype == np.uint8
    assert images.x.shape == (1200, 4, 5, 3)
    assert len(images.mean) == 3
    targets = build(synthetic(synthetic={"classes": 0}, partition="by-writer"), 0).samples
    assert targets.y.dtype == np.float32
    assert targets.classes == ()


def test_pictures_tables_and_summaries(tmp_path: Path) -> None:
    federation = build(DataSettings(), 0, needs_validation=True)
    rows = table(federation)
    assert [row["train"] for row in rows] == federation.train.sizes.tolist()
    assert sum(row["train"] + row["val"] + row["test"] for row in rows) == 1797
    facts = summary(federation)
    assert facts["clients"] == 20
    assert 0.2 < facts["skew"] < 1
    many = build(synthetic(clients=150), 0)
    plain = build(synthetic(synthetic={"classes": 0}, partition="iid"), 0)
    fine = build(synthetic(synthetic={"classes": 40}), 0)
    for name, each in (("a.png", federation), ("b.svg", many), ("c.png", plain), ("d.png", fine)):
        assert draw(each, tmp_path / name).stat().st_size > 5000
        assert summary(each)["clients"] == each.clients


def test_samples_of_unequal_length_are_refused() -> None:
    with pytest.raises(ValueError, match="one label, test flag, group, unit and time each"):
        Samples(np.zeros((3, 2)), np.zeros(2, np.int64), ("a",), np.zeros(3, bool))


FROZEN_DIRICHLET = [12, 18, 22, 50, 57]
FROZEN_MIXED = [9, 25, 36, 39, 40]


def test_drawers_and_domains_give_clients_their_names() -> None:
    """Groups 0, 1, 2 are anna, bert, carl; by domain, anna's samples go to two clients."""
    groups, names = np.array([0, 1, 2, 0, 1, 2]), ("anna", "bert", "carl")
    writers = Shares.from_owners(np.array([-1, 0, 1, -1, 0, 1]), 2)
    assert kinds.ByWriter().names(groups, names, writers) == ("bert", "carl")
    domains = Shares.from_owners(np.array([0, 2, 3, 1, 2, 3]), 4)
    assert kinds.ByDomain().names(groups, names, domains) == ("anna-1", "anna-2", "bert-1", "carl-1")
    assert kinds.ByDomain().names(None, (), domains) == ()


def test_resampled_clients_outnumber_the_samples_and_do_not_train_on_test_samples() -> None:
    chosen = synthetic(partition={"kind": "resampled", "size": 7, "test": 3, "alpha": 0.1}, clients=5000)
    federation = build(chosen, 3)
    assert federation.train.sizes.tolist() == [7] * 5000
    assert federation.test.sizes.tolist() == [3] * 5000
    official = federation.samples.official_test
    assert not official[federation.train.indices].any()
    assert official[federation.test.indices].all()
    labels = federation.samples.y
    for client in (0, 17, 4999):
        assert set(labels[federation.test[client]]) <= set(labels[federation.train[client]])
    assert build(chosen, 3).digest() == federation.digest() != build(chosen, 4).digest()


def test_the_draws_of_resampled_clients_stay_what_they_were() -> None:
    """A run that is resumed with a later version must find the same data."""
    shares = kinds.resampled(np.arange(60) % 3, 2, numpy_stream(0, "test"), 0.5, 6)
    assert shares.indices.tolist() == [36, 55, 53, 58, 4, 54, 56, 14, 14, 41, 17, 38]


@pytest.mark.parametrize(("rows", "expected"), [([0, 1, 2], [2, 0, 2]), ([0, 2, 5], [5, 0, 5]), ([2, 1, 0], [0, 2, 0])])
def test_shares_within_a_larger_set_are_those_rows(rows: list[int], expected: list[int]) -> None:
    shares = Shares(np.array([2, 0, 2]), np.array([0, 1, 3])).within(np.array(rows))
    assert (shares.indices.tolist(), shares.offsets.tolist()) == (expected, [0, 1, 3])


@pytest.mark.parametrize("alpha", [0.01, 1.0, 100.0])
def test_alpha_decides_how_many_classes_a_resampled_client_has(alpha: float) -> None:
    """A class with share p ~ Beta(alpha, 5 alpha) of six is missing among 20 draws with probability E (1 - p)^20 =
    B(alpha, 5 alpha + 20) / B(alpha, 5 alpha): 1.17, 4.80 and 5.83 classes on average."""
    labels = np.arange(600) % 6
    shares = kinds.resampled(labels, 4000, numpy_stream(0, "test"), alpha, 20)
    classes = [len(np.unique(labels[shares[client]])) for client in range(4000)]
    missing = lgamma(6 * alpha) + lgamma(5 * alpha + 20) - lgamma(5 * alpha) - lgamma(6 * alpha + 20)
    assert np.mean(classes) == pytest.approx(6 * (1 - exp(missing)), abs=0.05)
    assert np.bincount(labels[shares.indices]).min() > 4000 * 20 / 6 * 0.9  # all classes are used alike


@pytest.mark.parametrize(
    "change", [{"split": {"train": 0.6, "val": 0.2, "test": 0.2}}, {"split": "official", "val": 0.1}]
)
def test_resampled_data_have_no_validation_samples(change: Any) -> None:
    """One client's validation sample would be another's training sample."""
    with pytest.raises(UserError, match=r"choose another data\.partition"):
        build(synthetic(partition="resampled", **change), 0)
    with pytest.raises(UserError, match=r"choose another data\.partition"):
        build(synthetic(partition="resampled"), 0, needs_validation=True)


def test_resampled_data_need_a_test_split_of_their_own() -> None:
    with pytest.raises(UserError, match="needs a source with a test split of its own"):
        build(synthetic(partition="resampled", synthetic={"test": 0.0}), 0)


def test_shares_in_another_order_are_those_of_the_same_clients() -> None:
    shares = Shares(np.array([5, 3, 8, 1, 9, 2]), np.array([0, 2, 2, 5, 6]))
    other = shares.reordered([2, 0, 1, 3])
    assert [other[client].tolist() for client in range(4)] == [[8, 1, 9], [5, 3], [], [2]]
