"""Turns a declaration into runs, each with its settings, its key and the policy that it needs."""

import hashlib
import importlib.util
import itertools
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from fedtailor.errors import UserError, unknown
from fedtailor.methods import BUILT_IN, AgentMethod, Decider, Method, catalogue, spec
from fedtailor.methods.base import Formerly
from fedtailor.runs.completion import with_devices
from fedtailor.runs.policies import built_in_digest
from fedtailor.runs.reproduce.declaration import (
    FILE,
    OTHERS,
    Declaration,
    ExperimentDeclaration,
    Size,
    merged,
    method_tables,
    read_declaration,
)
from fedtailor.runs.settings import Experiment, experiment, make_method, read_toml
from fedtailor.version import RESULTS

TYPICAL = 2_000  # number of samples if the settings do not give it; for estimates only
REFERENCE = "@"  # policy = "@name": the policy of a pre-training of this plan


@dataclass(frozen=True)
class Step:
    """One run: an experiment with a method and a seed. Its key covers everything that its results depend on."""

    experiment: str
    method: str  # the label
    seed: int
    settings: Experiment  # the path of a policy is the folder of its pre-training
    key: str
    pretrains: bool = False
    needs: "Step | None" = None  # the pre-training of its policy
    deciders: str | None = None
    given: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.experiment}/{self.method}, seed {self.seed}"

    @property
    def file(self) -> str:
        """The name of its folder and of its record."""
        text = self.experiment if self.pretrains else f"{self.experiment}-{self.method}"
        return f"{file_name(text)}-s{self.seed}-{self.key[:10]}"

    @property
    def rounds(self) -> int:
        return self.settings.rounds * (self.settings.pretrain.episodes if self.pretrains else 1)

    @property
    def work(self) -> float:
        """Passes over samples, for estimates of time; the size of the network is ignored."""
        settings = self.settings
        ratio, cohort = settings.participation.ratio, settings.participation.clients
        share = (sum(ratio) / 2 if isinstance(ratio, tuple) else ratio) if cohort is None else cohort / _clients(self)
        final = 1.0 if settings.evaluation.final and not self.pretrains else 0.0
        passes = settings.method.passes(settings.training.epochs)
        return (self.rounds * share + final) * passes * (settings.data.samples or TYPICAL) + self.rounds


@dataclass(frozen=True)
class Plan:
    """All runs of a recipe at a size."""

    folder: Path
    size: Size
    declaration: Declaration
    steps: Mapping[str, Mapping[str, tuple[Step, ...]]]  # by experiment and method: a step per seed

    @property
    def name(self) -> str:
        return self.declaration.page or self.folder.resolve().name

    def methods(self, name: str, place: str) -> Mapping[str, tuple[Step, ...]]:
        """The runs of an experiment by method."""
        if name not in self.steps:
            near = get_close_matches(name, self.steps, n=5) or list(self.steps)[:5]
            raise UserError(f"{self.folder / FILE}: {place}: {unknown('experiment', name, near)}")
        return self.steps[name]

    def find(self, name: str, method: str | None, place: str) -> tuple[Step, ...]:
        """The runs of a cell, one for each seed.

        Raises
        ------
        UserError
            If the plan has no such experiment or method. The message begins with ``place``.
        """
        methods = self.methods(name, place)
        if method is None and len(methods) == 1:
            return next(iter(methods.values()))
        if method is None:
            raise UserError(f"{self.folder / FILE}: {place}: name the method ({name} has {', '.join(methods)})")
        return methods.get(method, ())


def make_plan(
    folder: Path, size: Size = "laptop", runs: Path = Path("runs"), changes: Mapping[str, Any] | None = None
) -> Plan:
    """The runs that a recipe folder declares.

    Parameters
    ----------
    folder
        The recipe folder, which holds ``reproduce.toml``.
    size
        ``laptop`` uses the base files as they are, ``paper`` adds the settings under ``paper``.
    runs
        The parent folder of the runs; only the paths of policies depend on it.
    changes
        Settings by dotted name that change no result, such as the engine and the folder of the data.
    """
    declaration = _of_size(read_declaration(folder), size)
    made = _Planner(folder, size, runs, declaration, changes or {}).steps()
    return Plan(folder, size, declaration, made)


def _of_size(declaration: Declaration, size: Size) -> Declaration:
    """The declaration without the tables of another size, and their claims."""
    tables = {name: table for name, table in declaration.tables.items() if table.size in (None, size)}
    claims = tuple(claim for claim in declaration.claims if claim.table is None or claim.table in tables)
    return declaration.model_copy(update={"tables": tables, "claims": claims})


def run_folder(runs: Path, recipe: Path, step: Step) -> Path:
    """The folder of a step's run."""
    return runs / f"reproduce-{recipe.resolve().name}" / step.file


def load_deciders(folder: Path, step: Step) -> dict[str, Decider]:
    """The deciders that replace the agents in a step, made by the recipe's own function."""
    if step.deciders is None:
        return {}
    file, _, function = step.deciders.partition(":")
    found = importlib.util.spec_from_file_location(f"recipe_{Path(file).stem}", folder / file)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    if not hasattr(module, function):
        raise UserError(f"{folder / file} has no function {function!r}: it is named in deciders of {step.experiment}")
    return dict(getattr(module, function)(step.settings, **step.given))


def canonical(value: Any) -> Any:
    """Settings without defaults, so that a setting that a later version adds changes no digest."""
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        named = {name: getattr(value, name) for name in fields}
        table = {
            name: canonical(inner)
            for name, inner in named.items()
            if name == "kind" or fields[name].is_required() or inner != _usual(fields[name])
        }
        return {"name": spec(value), **table} if isinstance(value, Method) else table
    if isinstance(value, Mapping):
        return {str(key): canonical(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [canonical(inner) for inner in value]
    return str(value) if isinstance(value, Path) else value


def _usual(field: FieldInfo) -> Any:
    """The value that a key leaves out: the default, or the former one if there is another now."""
    former = [one.value for one in field.metadata if isinstance(one, Formerly)]
    return former[0] if former else field.get_default(call_default_factory=True)


class _Planner:
    def __init__(self, folder: Path, size: Size, runs: Path, declaration: Declaration, changes: Mapping[str, Any]):
        self.folder, self.size, self.runs, self.declaration, self.changes = folder, size, runs, declaration, changes
        self.methods = method_tables(declaration, folder / FILE)
        self.policies: dict[str, Step] = {}  # pre-trainings by the name of their experiment

    def steps(self) -> dict[str, dict[str, tuple[Step, ...]]]:
        found: dict[str, dict[str, tuple[Step, ...]]] = {}
        declared = self.declaration.experiments
        for template in sorted(
            declared, key=lambda name: not declared[name].pretrain
        ):  # pre-trainings before the runs that use their policies
            for name, made in self._expand(template, declared[template]):
                if name in found:
                    raise UserError(
                        f"{self._at(template)}: the name {name!r} appears twice: use {{...}} to make names differ"
                    )
                found[name] = made
                if declared[template].pretrain:
                    steps = [step for those in made.values() for step in those]
                    if len(steps) == 1:
                        self.policies[name] = steps[0]
        return found

    def _expand(
        self, template: str, declared: ExperimentDeclaration
    ) -> Iterator[tuple[str, dict[str, tuple[Step, ...]]]]:
        for base in declared.bases:
            for values in itertools.product(*declared.vary.values()):
                chosen = dict(zip(declared.vary, values, strict=True))
                words = {"base": Path(base).stem, **{key: _as_text(value) for key, value in chosen.items()}}
                settings = self._settings(template, declared, base, chosen)
                methods = self._labelled(template, declared, settings)
                seeds = self._seeds(template, declared, settings, methods)
                alone = "{method}" in template
                for labels in [[label] for label in methods] if alone else [list(methods)]:
                    name = _filled(template, {**words, **({"method": labels[0]} if alone else {})})
                    these = {label: methods[label] for label in labels}
                    yield name, self._runs(name, declared, settings, these, seeds, words, chosen)

    def _settings(
        self, template: str, declared: ExperimentDeclaration, base: str, chosen: Mapping[str, Any]
    ) -> dict[str, Any]:
        values = read_toml(self.folder / (base if base.endswith(".toml") else f"{base}.toml"))
        at_paper = self.size == "paper"
        layers = [self.declaration.paper if at_paper else {}, declared.set, declared.paper if at_paper else {}, chosen]
        for layer in layers:
            for key, value in layer.items():
                if not key.startswith("given."):
                    _put(values, key, value, self._at(template))
        return values

    def _labelled(
        self, template: str, declared: ExperimentDeclaration, settings: Mapping[str, Any]
    ) -> dict[str, dict[str, Any]]:
        """The methods by label: the given label, a key of [methods], or the method's name."""
        own = settings.get("method", {"name": "fedavg"})
        listed = declared.methods or settings.get("compare", {}).get("methods") or [own]
        found: dict[str, dict[str, Any]] = {}
        for one in listed:
            if isinstance(one, str):
                label, table = one, self.methods.get(one, {"name": one})
                if one not in self.methods and one not in catalogue() and ":" not in one:
                    known = unknown("method", one, [*self.methods, *catalogue()])
                    raise UserError(f"{self._at(template)}: {known}")
            else:
                table = dict(one)
                label = str(table.pop("label", table.get("name")))
                if parent := table.pop("like", None):
                    table = merged(self.methods.get(parent, {"name": parent}), table)
            if label in found:
                raise UserError(f"{self._at(template)}: the method {label!r} appears twice: give each a label")
            found[label] = dict(table)
        return found

    def _seeds(
        self, template: str, declared: ExperimentDeclaration, values: Mapping[str, Any], labels: Collection[str]
    ) -> dict[str, Sequence[int]]:
        """The seeds of every method."""
        usual = [values.get("seed", 0)] if declared.pretrain else values.get("compare", {}).get("seeds", [0])
        at_paper = self.size == "paper" and declared.paper_seeds is not None
        chosen = declared.paper_seeds if at_paper else declared.seeds
        if not isinstance(chosen, Mapping):
            return dict.fromkeys(labels, chosen or usual)
        for label in chosen:
            if label not in (*labels, OTHERS):
                place = f"{self._at(template)}, {'paper_seeds' if at_paper else 'seeds'}"
                raise UserError(f"{place}: {unknown('method', label, [*labels, OTHERS])}")
        return {label: chosen.get(label, chosen.get(OTHERS, usual)) for label in labels}

    def _runs(
        self,
        name: str,
        declared: ExperimentDeclaration,
        values: Mapping[str, Any],
        methods: Mapping[str, dict[str, Any]],
        seeds: Mapping[str, Sequence[int]],
        words: Mapping[str, str],
        chosen: Mapping[str, Any],
    ) -> dict[str, tuple[Step, ...]]:
        needed = {label: self._policy(name, table, words) for label, table in methods.items()}
        made: dict[str, Method] = {}
        for label, table in methods.items():
            policy = needed[label]
            path = {} if policy is None else {"policy": str(run_folder(self.runs, self.folder, policy))}
            made[label] = make_method({**table, **path}, f"{self._at(name)}, method {label!r}")
        validation = bool(values.get("validation")) or any(method.needs_validation for method in made.values())
        values = with_devices(values, made.values())
        given = {**declared.given, **{k[6:]: v for k, v in chosen.items() if k.startswith("given.")}}
        code = None if declared.deciders is None else self._code(name, declared.deciders)
        steps: dict[str, tuple[Step, ...]] = {}
        for label, method in made.items():
            runs = []
            for seed in seeds[label]:
                changes = {"seed": seed, "validation": validation, "method": method}
                settings = self._experiment(name, {**values, **changes})
                if settings.training.precision == "auto":
                    raise UserError(f"{self._at(name)}: training.precision = 'auto' depends on the machine: name one")
                if settings.training.together == "auto":
                    raise UserError(f"{self._at(name)}: training.together = 'auto' depends on the version: name one")
                policy = needed[label]
                key = _key(settings, policy, declared.pretrain, [code, given] if code else None)
                settings = settings.model_copy(update={"name": file_name(f"{name}-{label}-s{seed}")})
                runs.append(Step(name, label, seed, settings, key, declared.pretrain, policy, declared.deciders, given))
            steps[label] = tuple(runs)
        return steps

    def _experiment(self, name: str, values: Mapping[str, Any]) -> Experiment:
        try:
            return experiment(values, self.changes)
        except UserError as error:
            raise UserError(f"{self._at(name)}: {str(error).removeprefix('experiment: ')}") from None

    def _policy(self, name: str, table: Mapping[str, Any], words: Mapping[str, str]) -> Step | None:
        policy = table.get("policy")
        if not isinstance(policy, str) or not policy.startswith(REFERENCE):
            return None
        wanted = _filled(policy.removeprefix(REFERENCE), words)
        if wanted not in self.policies:
            raise UserError(f"{self._at(name)}: {unknown('pre-training', wanted, self.policies)}")
        return self.policies[wanted]

    def _code(self, name: str, deciders: str) -> str:
        file, colon, _ = deciders.partition(":")
        try:
            content = (self.folder / file).read_bytes()
        except OSError as error:
            raise UserError(f"{self._at(name)}: deciders = {deciders!r}: {file}: {error.strerror}") from None
        if not colon:
            raise UserError(f"{self._at(name)}: deciders = {deciders!r}: write FILE.py:FUNCTION")
        return hashlib.sha256(content).hexdigest() + deciders

    def _at(self, name: str) -> str:
        return f"{self.folder / FILE}: experiments.{name}"


def _key(settings: Experiment, policy: Step | None, pretrains: bool, deciders: Any) -> str:
    """A digest of everything that the results depend on except the data, whose digest is in the record."""
    table = canonical(settings.model_copy(update={"data": settings.data.shortest}))
    for place in ("name", "engine", "compare", "track", *(() if pretrains else ("pretrain",))):
        table.pop(place, None)
    table.get("data", {}).pop("dir", None)
    method = settings.method
    if isinstance(method, AgentMethod):
        built_in = not pretrains and method.uses_built_in and not deciders
        table["method"].pop("policy", None)
        own = None if method.own_policy is None else str(method.own_policy)
        begins = f"{BUILT_IN} {built_in_digest(method)}" if built_in else own if policy is None else policy.key
        table["method"] |= {} if begins is None else {"policy": begins}
    facts = {"results": RESULTS, "settings": table, "pretrains": pretrains, "deciders": deciders}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _put(values: dict[str, Any], key: str, value: Any, place: str) -> None:
    *names, last = key.split(".")
    for name in names:
        inner = values.get(name, {})
        if not isinstance(inner, Mapping):
            raise UserError(f"{place}: {key}: {name} is not a table")
        values[name] = dict(inner)
        values = values[name]
    values[last] = value


def _filled(template: str, words: Mapping[str, str]) -> str:
    for key, word in words.items():
        template = template.replace(f"{{{key}}}", word)
    return template


def _as_text(value: Any) -> str:
    return "-".join(map(_as_text, value)) if isinstance(value, list | tuple) else str(value)


def file_name(text: str) -> str:
    """A text as the name of a file."""
    return "".join(c if c.isalnum() or c in "-_.=" else "_" for c in text).strip("._")[:80]


def _clients(step: Step) -> int:
    return max(step.settings.data.filled.clients or 1, step.settings.participation.clients or 1)
