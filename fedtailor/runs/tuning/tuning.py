"""Tune settings on validation data: ask for a batch of trials, end those below the median, continue the others."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedtailor.data import Federation
from fedtailor.errors import UserError
from fedtailor.methods import Method, spec
from fedtailor.runs.settings import Experiment, experiment, make_method
from fedtailor.runs.trials import SearchCallback, TrialRunner, plan
from fedtailor.runs.tuning.results import Tuned, Tuning
from fedtailor.runs.tuning.sampling import check_optuna, importance
from fedtailor.runs.tuning.search import Search, carry_out
from fedtailor.runs.tuning.space import space_of


def tune(
    source: "str | Path | Mapping[str, Any] | Experiment | None" = None,
    *,
    over: Sequence[str] = (),
    methods: Sequence[str | Mapping[str, Any] | Method] = (),
    trials: int = 25,
    minutes: float | None = None,
    seeds: Sequence[int] = (),
    folder: str | Path | None = None,
    federation: Federation | None = None,
    callback: SearchCallback | None = None,
) -> Tuning:
    """Search for good settings of an experiment, on validation data alone.

    Test samples are removed before the first trial. Trial 0 has the experiment's own settings; Optuna chooses the
    others in batches. A trial that is below the median of all trials so far ends after a fourth or half of its rounds.
    The same call resumes a search that was stopped or killed, and gives the same trials, whatever the number of
    workers. More ``trials`` continue a finished search.

    Parameters
    ----------
    source : str, Path, mapping, Experiment or None, optional
        The experiment: a TOML file, its settings, or an `Experiment`; None for the default settings.
    over : sequence of str, optional
        What to search: ``training.lr``, ``method.mu=0.001:1:log``, ``training.batch_size=10,32``. By default the
        learning rate and the first of the method's own settings, in ranges that their limits and values suggest.
    methods : sequence of str, mapping or Method, optional
        Several methods, each with a search of its own and the same number of trials; by default the experiment's.
    trials : int, optional
        Number of trials of each method.
    minutes : float, optional
        No batch starts that would probably end after this time.
    seeds : sequence of int, optional
        The value of a trial is the mean over these seeds; by default that of the experiment.
    folder : str or Path, optional
        The folder of the search; ``runs/<name>-tune`` by default.
    federation : Federation, optional
        The clients' data, instead of those that the data settings describe.
    callback : SearchCallback, optional
        Observes the search.

    Returns
    -------
    Tuning
        The trials and the best settings, which are also written as TOML into the folder.

    Examples
    --------
    >>> few = {"rounds": 2, "data": {"samples": 300}}
    >>> tuning = fedtailor.tune(few, over=["training.lr=0.01:0.5:log"], trials=3, folder="runs/tune")
    >>> len(tuning.of("fedavg").trials), tuning.best.training.lr > 0
    (3, True)
    """
    check_optuna()
    settings = experiment(source)
    if trials < 1:
        raise UserError(f"--trials {trials}: at least one trial is needed")
    plan.check_minutes(minutes)
    chosen = tuple(seeds) or (settings.seed,)
    plan.check_seeds(chosen)
    searches = _searches(settings, methods, over, chosen)
    place = Path(folder) if folder is not None else default_folder(settings)
    needs_validation = any(one.settings.method.needs_validation for one in searches)
    data = plan.data_of(plan.whole_of(settings, federation), settings, needs_validation)
    first = data(chosen[0])
    measured = plan.measure_of(settings, first)
    sign = 1 if measured.better == "higher" else -1
    for one in searches:
        one.better = sign
    plan.check(place, [plan.trial_settings(one.settings, chosen[0]) for one in searches], first)
    whole_plan = {
        **plan.facts(settings, first),
        "tune": {
            "seeds": list(chosen),
            "methods": [one.settings.as_dict()["method"] for one in searches],
            "over": [[dimension.as_text() for dimension in one.space] for one in searches],
        },
    }
    with TrialRunner(place, whole_plan, settings.engine, data, callback or SearchCallback()) as runner:
        notes = [
            *plan.caveats(settings, [one.settings for one in searches], first),
            *carry_out(runner, searches, trials, minutes),
        ]
    found = sorted((_tuned(one) for one in searches), key=lambda tuned: -sign * (tuned.best.value or 0.0))
    made = Tuning(
        **plan.outline(place, settings, chosen, first),
        methods=tuple(found),
        written={tuned.method: place / _file(tuned.method, len(found)) for tuned in found},
        notes=tuple(notes),
    )
    for tuned in found:
        made.written[tuned.method].write_text(plan.as_toml(tuned.settings, _comments(made, tuned)), encoding="utf-8")
    return made


def default_folder(settings: Experiment, runs: Path = Path("runs")) -> Path:
    """The default folder of a search, next to that of a run of the same experiment."""
    return runs / f"{settings.name}-tune"


def _searches(
    settings: Experiment,
    methods: Iterable[str | Mapping[str, Any] | Method],
    over: Sequence[str],
    seeds: tuple[int, ...],
) -> list[Search]:
    """A search for each method; of the named settings, each method is searched over those that it has."""
    given = [make_method(one, "--methods") for one in methods]
    searches: list[Search] = []
    for method in given or [settings.method]:
        one, label = settings.model_copy(update={"method": method}), method.name or spec(method)
        if label in {search.label for search in searches}:
            raise UserError(f"--methods names {label!r} twice")
        own = [text for text in over if len(given) < 2 or (_has(method, text) and not _idle(method, over, text))]
        if idle := [text for text in own if _idle(method, over, text)]:
            raise UserError(f"--over {idle[0]}: with these settings of {label} it changes nothing")
        if over and not own:
            raise UserError(f"--over names no setting of {label}: name one that it has too, such as training.lr")
        searches.append(Search(label, one, space_of(one, own), seeds))
    for text in over:  # raises for a setting that no method has
        if len(given) > 1 and not any(_has(method, text) for method in given):
            space_of(searches[0].settings, [text])
    return searches


def _idle(method: Method, over: Sequence[str], text: str) -> bool:
    """Whether a setting changes nothing, and no other one of the method is searched that might make it count."""
    key = text.partition("=")[0].strip()
    others = any(other.startswith("method.") and other != text for other in over)
    return (
        key.removeprefix("method.").replace("-", "_") in method.idle_settings()
        and key.startswith("method.")
        and not others
    )


def _has(method: Method, text: str) -> bool:
    table, _, rest = text.partition("=")[0].partition(".")
    return table.strip() != "method" or rest.partition(".")[0].strip().replace("-", "_") in type(method).model_fields


def _tuned(search: Search) -> Tuned:
    complete = [row for row in search.rows if row.value is not None]
    if not complete:
        reasons = [row.failure for row in search.rows if row.failure]
        raise UserError(f"no trial of {search.label} ended with a usable model (first reason: {reasons[0]})")
    best = max(complete, key=lambda row: search.better * (row.value or 0.0))
    settings = experiment(search.settings, best.values)
    return Tuned(
        search.label,
        tuple(search.space),
        tuple(search.rows),
        settings.model_copy(update={"name": f"{settings.name}-tuned"}),
        best,
        importance(search.space, search.observations, search.better),
    )


def _file(method: str, methods: int) -> str:
    safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in method)
    return "best.toml" if methods == 1 else f"best-{safe}.toml"


def _comments(made: Tuning, tuned: Tuned) -> list[str]:
    best = tuned.best
    scale, unit = (100, " %") if made.percent else (1, "")
    return [
        f"The best settings of {len(tuned.trials)} trials of 'fedtailor tune': trial {best.number}.",
        f"{made.measure} of the {made.model} models on validation data: {scale * (best.value or 0):.2f}{unit}"
        f" (mean over {len(made.seeds)} seed{'s' * (len(made.seeds) > 1)}). It is the best of many,",
        "so it is optimistic; what these settings are worth is what a run measures on test data.",
    ]
