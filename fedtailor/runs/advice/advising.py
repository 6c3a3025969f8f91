"""Advise on a method: look at the federation, choose candidates by rules, and let short trials decide."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedtailor.data import Federation
from fedtailor.methods import Method, spec
from fedtailor.runs.advice.race import Race, Result
from fedtailor.runs.advice.reasons import reasons
from fedtailor.runs.advice.results import Advice, Standing
from fedtailor.runs.advice.rules import Needs, choose
from fedtailor.runs.advice.traits import traits_of
from fedtailor.runs.cohort import largest_cohort
from fedtailor.runs.settings import Experiment, experiment, method_dict
from fedtailor.runs.statistics import SEEDS, difference, wins
from fedtailor.runs.trials import SearchCallback, TrialRunner, plan


def advise(
    source: "str | Path | Mapping[str, Any] | Experiment | None" = None,
    *,
    methods: Sequence[str | Mapping[str, Any] | Method] = (),
    only_sums: bool = False,
    no_peers: bool = False,
    minutes: float | None = None,
    seeds: Sequence[int] = (),
    folder: str | Path | None = None,
    federation: Federation | None = None,
    callback: SearchCallback | None = None,
) -> Advice:
    """Find a method for a federation, by short paired trials on validation data alone.

    Test samples are removed first. Stated rules choose the candidates. All candidates run an eighth of the rounds; the
    best of them vary their main settings; the better ones continue to a fourth, half and all of the rounds. The last
    stage has other seeds than those that chose. The same call resumes a search that was stopped or killed, and gives
    the same answer, whatever the number of workers.

    Parameters
    ----------
    source : str, Path, mapping, Experiment or None, optional
        The experiment: a TOML file, its settings, or an `Experiment`; None for the default settings.
    methods : sequence of str, mapping or Method, optional
        The candidates, instead of all methods that fit.
    only_sums : bool, optional
        Leave out methods whose server needs more than sums of what clients send.
    no_peers : bool, optional
        Leave out methods that show clients the models of other clients.
    minutes : float, optional
        No stage starts that would probably end after this time.
    seeds : sequence of int, optional
        The seeds of the last stage; by default three, from that of the experiment on. The stages before it have as
        many others.
    folder : str or Path, optional
        The folder of the search; ``runs/<name>-advise`` by default.
    federation : Federation, optional
        The clients' data, instead of those that the data settings describe.
    callback : SearchCallback, optional
        Observes the search.

    Returns
    -------
    Advice
        The ranking, the reasons and the recommended settings, which are also written as TOML into the folder.

    Examples
    --------
    >>> few = {"rounds": 2, "data": {"samples": 300}}
    >>> advice = fedtailor.advise(few, methods=["fedavg", "local"], folder="runs/advise")
    >>> advice.method in ("fedavg", "local"), len(advice.standings)
    (True, 2)
    """
    settings = experiment(source)
    plan.check_minutes(minutes)
    last = tuple(seeds) or tuple(range(settings.seed, settings.seed + SEEDS))
    plan.check_seeds(last)
    choosing = tuple(range(max(last) + 1, max(last) + 1 + len(last)))
    place = Path(folder) if folder is not None else default_folder(settings)
    whole = plan.whole_of(settings, federation)
    data = plan.data_of(whole, settings, needs_validation=False)
    first = data(last[0])
    traits, needs = traits_of(settings, first), Needs(only_sums, no_peers)
    candidates, left_out = choose(settings, first, traits, methods, needs)
    if any(one.method.needs_validation for one in candidates):  # what one needs, all have, as in a comparison
        data = plan.data_of(whole, settings, needs_validation=True)
        first = data(last[0])
    plan.check(place, [plan.trial_settings(one, last[0]) for one in candidates], first)
    methods_plan = {"seeds": list(last), "methods": [method_dict(one.method) for one in candidates]}
    whole_plan = {**plan.facts(settings, first), "advise": methods_plan}
    known = plan.outline(place, settings, last, first)
    with TrialRunner(place, whole_plan, settings.engine, data, callback or SearchCallback()) as runner:
        race = Race(
            runner,
            candidates,
            seeds=last,
            choosing=choosing,
            own=spec(settings.method),
            better=-1 if known["less_is_better"] else 1,
            participants=largest_cohort(settings, first.clients),
            clients=first.clients,
            minutes=minutes,
        )
        race.run()
    standings = _standings(race, known["percent"])
    best = _best(settings, race, standings[0].method)
    private = settings.privacy.hides_clients or settings.training.dp_sgd is not None
    made = Advice(
        **known,
        choosing=choosing,
        traits=traits,
        standings=tuple(standings),
        left_out=tuple(left_out),
        reasons=tuple(reasons(traits, standings, spec(settings.method), private)),
        best=best,
        written=place / "best.toml",
        notes=(*plan.caveats(settings, candidates, first), *race.notes),
    )
    text = plan.as_toml(best, ["Recommended by 'fedtailor advise':", *made.reasons])
    made.written.write_text(text, encoding="utf-8")
    return made


def default_folder(settings: Experiment, runs: Path = Path("runs")) -> Path:
    """The default folder of an advice, next to that of a run of the same experiment."""
    return runs / f"{settings.name}-advise"


def _best(settings: Experiment, race: Race, method: str) -> Experiment:
    found = next(one.arm.settings for one in _furthest(race) if one.arm.method == method)
    return found.model_copy(update={"name": f"{settings.name}-advised"})


def _furthest(race: Race) -> list[Result]:
    """The best result of every method in the last stage that it reached; methods that came further stand first."""
    found: dict[str, Result] = {}
    for stage in reversed(race.stages):
        for result in stage.results:
            found.setdefault(result.arm.method, result)
    ranked = list(found.values())
    return sorted(ranked, key=lambda result: bool(result.failure))


def _standings(race: Race, percent: bool) -> list[Standing]:
    ranked = _furthest(race)
    first, scale = ranked[0], 100.0 if percent else 1.0
    last = race.stages[-1]
    own = {seed: scale * value for seed, value in first.values.items()}
    standings = []
    for result in ranked:
        theirs = {seed: scale * value for seed, value in result.values.items()}
        # Trials of one stage share rounds, seeds, clients and starts; those of different stages are no pairs.
        paired = result is not first and not result.failure and result in last.results
        standings.append(
            Standing(
                result.arm.method,
                result.arm.changes,
                last.name == "last" and result in last.results,
                result.rounds,
                result.value,
                result.values,
                difference(own, theirs, percent, race.better) if paired else None,
                wins(first.clients, result.clients, race.better) if paired else None,
                result.megabytes,
                result.arm.work,
                result.seconds,
                result.failure,
            )
        )
    return standings
