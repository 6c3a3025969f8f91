"""The answer in plain words: what the federation is like, what the trials say, and what it costs."""

import inspect
import re
from collections.abc import Sequence

from fedtailor.methods import find
from fedtailor.runs.advice.results import Standing
from fedtailor.runs.advice.traits import Traits
from fedtailor.runs.statistics import LEVEL, UNDECIDED, Difference

CHEAPER = 0.7  # a method that needs a smaller share of the bytes or of the work is clearly cheaper


def reasons(traits: Traits, standings: Sequence[Standing], own: str, private: bool) -> list[str]:
    """Sentences for the reader; ``own`` is the experiment's method."""
    first = standings[0]
    return [
        *federation_sentences(traits, private),
        *_exchange(standings),
        *_chosen(traits, first, standings),
        *_beside(first, [one for one in standings[1:] if one.last or one.method == own]),
        *_cheaper(first, standings),
    ]


def verdict(standings: Sequence[Standing]) -> str:
    """How sure the recommendation is, in a clause."""
    decided: dict[str, list[str]] = {}
    for one in standings[1:]:
        if one.difference is not None:
            decided.setdefault(one.difference.outcome, []).append(one.method)
    words = {"ahead": "ahead of", "level": "level with", UNDECIDED: "not decided against", "behind": "behind"}
    return "; ".join(f"{word} {', '.join(decided[key])}" for key, word in words.items() if key in decided)


def federation_sentences(traits: Traits, private: bool) -> list[str]:
    """What the federation is like."""
    sizes = f"{traits.smallest} to {traits.largest} training samples (median {traits.median:g})"
    found = [f"Your federation has {traits.clients} clients with {sizes}."]
    if traits.label_skew is not None:
        how = "more than chance would make it" if traits.labels_differ else "hardly more than chance makes it"
        found.append(
            f"A client has {traits.classes_each:g} of {traits.classes} classes (median); label skew "
            f"{traits.label_skew:.2f}, {how} ({traits.label_chance:.2f})."
        )
    if traits.feature_skew is not None:
        share = f"{100 * traits.feature_skew:.0f} %"
        what = "clients' inputs differ" if traits.features_differ else "clients' inputs are much alike"
        found.append(f"Within a class, {share} of the inputs' variance is due to the client: {what}.")
    if traits.cohort < traits.clients:
        turns = f"a client does in {traits.turns:.3g} rounds on average"
        found.append(f"Up to {traits.cohort} clients take part in a round: {turns}.")
    if traits.device_spread is not None:
        found.append(f"The slowest device takes {traits.device_spread:.3g} times as long as the fastest.")
    if private:
        found.append("Privacy is on, so methods that need more than plain training and one sum are left out.")
    return found


def _exchange(standings: Sequence[Standing]) -> list[str]:
    """How one model for all compares with no exchange at all."""
    average, alone = (_named(standings, name) for name in ("fedavg", "local"))
    if average is None or alone is None or alone is standings[0] or average is standings[0]:
        return []  # the comparison with the recommended method says it
    if average.difference is None or alone.difference is None:
        return []
    pairs = zip(alone.difference.values, average.difference.values, strict=True)
    gained = Difference(tuple(a - b for a, b in pairs), alone.difference.unit, alone.difference.better)
    return [f"On validation data, {difference_words('fedavg', gained, 'local')}."]


def _named(standings: Sequence[Standing], name: str) -> Standing | None:
    return next((one for one in standings if one.method == name and one.value is not None), None)


def _chosen(traits: Traits, first: Standing, standings: Sequence[Standing]) -> list[str]:
    """What the recommended method is, what was measured of it, and what is known of the federation."""
    said = f"{first.method}: {about(first.method)}"
    average = _named(standings, "fedavg")
    decided = average is not None and average.difference is not None and average.difference.outcome == "ahead"
    if first.method == "fedavg":
        why = "No other method has a better mean."
    elif not decided:
        why = "It has the best mean, but fedavg is not decidedly worse."
    else:
        why = "It was ahead of fedavg, which gives all clients one model."
    facts = ""
    if traits.labels_differ:
        facts = f" Your clients have {traits.classes_each:g} of {traits.classes} classes each."
    elif traits.features_differ:
        facts = " Your clients' inputs differ."
    return [f"{said} {why}{facts if decided else ''}"]


def _beside(first: Standing, others: Sequence[Standing]) -> list[str]:
    found = []
    for one in others:
        if one.difference is not None and one.difference.mean is not None:
            told = difference_words(first.method, one.difference, one.method)
            wins = one.wins
            clients = f" (clients: {wins.won} better, {wins.tied} equal, {wins.lost} worse)" if wins else ""
            found.append(f"On validation data, {told}{clients}.")
    return found


def _cheaper(first: Standing, standings: Sequence[Standing]) -> list[str]:
    """Methods that are about as good and cost clearly less."""
    found = []
    for one in standings[1:]:
        gain = (
            one.difference.better * one.difference.mean if one.difference and one.difference.mean is not None else None
        )
        if gain is None or gain >= LEVEL / 2 or not one.last:
            continue
        bytes_less, work_less = one.megabytes < CHEAPER * first.megabytes, one.work < CHEAPER * first.work
        saved = f"{one.megabytes:.3g} instead of {first.megabytes:.3g} MB" if bytes_less else ""
        spared = f"{one.work:.3g} instead of {first.work:.3g} times the work of FedAvg" if work_less else ""
        if saved or spared:
            found.append(f"{one.method} is about as good and cheaper: {' and '.join(filter(None, (saved, spared)))}.")
    return found


def difference_words(one: str, found: Difference | None, other: str) -> str:
    """A paired difference as a sentence without its full stop.

    >>> difference_words("fedrep", Difference((1.0, 1.2, 1.4), "points"), "fedavg")
    'fedrep is ahead of fedavg by 1.2 points [0.7, 1.7]'
    """
    if found is None or found.mean is None:
        return f"{one} and {other} have no common trials"
    limits = found.interval
    unit = " points" if found.unit == "points" else " %"
    gain = found.better * found.mean
    shown = ""
    if limits is not None:
        low, high = sorted((found.better * limits.low, found.better * limits.high))
        shown = f" [{low:.1f}, {high:.1f}]"
    if found.outcome == "ahead":
        return f"{one} is ahead of {other} by {gain:.1f}{unit}{shown}"
    if found.outcome == "behind":
        return f"{one} is behind {other} by {-gain:.1f}{unit}{f' [{-high:.1f}, {-low:.1f}]' if shown else ''}"
    if found.outcome == UNDECIDED:
        return f"{one} and {other} differ by {gain:+.1f}{unit}{shown}, which is not decidable at this size"
    return f"{one} and {other} are level: {gain:+.1f}{unit}{shown}"


def about(method: str) -> str:
    """The first sentence of a method's description, without its paper.

    >>> about("fedper")
    'shared body, private head.'
    """
    text = " ".join((inspect.getdoc(find(method)) or "it has no description.").split("\n\n")[0].split())
    text = text.replace("``", "")
    text = re.sub(r"\s*\((?:[^()]|\([^()]*\))*\d{4}\)", "", text)
    end = text.find(". ")
    text = text if end < 0 else text[: end + 1]
    return text if text[1:2].isupper() or re.match(r"[A-Z][a-z]*[A-Z]", text) else text[:1].lower() + text[1:]
