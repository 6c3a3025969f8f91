"""The command line. Thin: each command reads its options, calls a room, and shows what came of it.

Imports of the rooms stand inside the commands, so that ``fedtailor --help`` answers at once.
"""

import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fedtailor.errors import UserError
from fedtailor.version import __version__

if TYPE_CHECKING:
    from fedtailor.runs import Comparison, Experiment, Run

STOPPED = 130

app = typer.Typer(
    help="FedTailor: personalised federated learning, in which every client ends with a model that fits.",
    epilog="Example: fedtailor run --rounds 5, then: fedtailor compare --methods local,fedavg,fedper",
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="rich",
)
data_app = typer.Typer(
    help="Data sets: list them, download them, look at who gets which samples.",
    epilog="Example: fedtailor data show --set data.partition.alpha=0.05",
)
app.add_typer(data_app, name="data")
keys_app = typer.Typer(
    help="Keys of a federation: who may take part in it, and how nodes know their coordinator.",
    epilog="Example: fedtailor keys init keys --host coordinator.example --node anna --node bert",
)
app.add_typer(keys_app, name="keys")


Engine = Literal["inline", "processes", "ray"]
Metric = Literal["final", "held", "received", "global"]

ExperimentFile = Annotated[
    Path | None, typer.Argument(metavar="EXPERIMENT.toml", help="The experiment; without it, digits.")
]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, as in training.lr=0.05; may be repeated."),
]
Name = Annotated[str | None, typer.Option(help="Name of the folder that is written.")]
Rounds = Annotated[int | None, typer.Option(help="Rounds of the federation.")]
DataDir = Annotated[Path | None, typer.Option(help="Folder of the data sets' files.")]
Workers = Annotated[int | None, typer.Option(help="Worker processes; one per core by default.")]
EngineKind = Annotated[Engine | None, typer.Option(help="Where clients train; changes no result.")]
RunsFolder = Annotated[Path, typer.Option(help="Folder in which the result gets its folder.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress; warnings are still shown.")]


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    if version:
        typer.echo(f"fedtailor {__version__}")
        raise typer.Exit
    _help_if_alone(context)


@data_app.callback(invoke_without_command=True)
def start_data(context: typer.Context) -> None:
    _help_if_alone(context)


@keys_app.callback(invoke_without_command=True)
def start_keys(context: typer.Context) -> None:
    _help_if_alone(context)


@app.command("run", epilog="Example: fedtailor run experiment.toml --set training.lr=0.1 --name try-2")
def run_command(
    experiment: ExperimentFile = None,
    sets: Sets = None,
    name: Name = None,
    method: Annotated[str | None, typer.Option(help="The method; see 'fedtailor methods'.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of every random stream.")] = None,
    rounds: Rounds = None,
    data_dir: DataDir = None,
    workers: Workers = None,
    engine: EngineKind = None,
    out: RunsFolder = Path("runs"),
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run an experiment in a new folder.

    EXPERIMENT.toml is written by 'fedtailor new'; without it, FedAvg learns digits with 20 clients.
    """
    changes = [_change("method", {"name": method})] if method is not None else []
    changes += [_change("seed", seed), _change("rounds", rounds)]
    settings = _settings(experiment, [*changes, *_where(name, data_dir, workers, engine)], sets)
    from fedtailor.runs import run
    from fedtailor.views.progress import watching

    place = out / settings.name
    with _interruptible(place), watching(quiet=quiet) as callbacks:
        done = run(settings, folder=place, callbacks=callbacks)
    _show_run(done, as_json)


@app.command(epilog="Example: fedtailor resume runs/experiment")
def resume(
    run: RunFolder,
    episodes: Annotated[int | None, typer.Option(min=1, help="Pre-train until there are so many.")] = None,
    workers: Workers = None,
    engine: EngineKind = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Go on with a run, or a comparison, from its last complete round."""
    from fedtailor import runs
    from fedtailor.views.progress import watching

    if _is_comparison(run):
        if episodes is not None:
            raise UserError(f"{run} is a comparison: only a pre-training has episodes")
        settings = _settings(run / runs.comparing.PLAN, _where(None, None, workers, engine))
        _compare(settings, run, as_json, quiet)
        return
    where = {"kind": engine, "workers": workers}
    chosen = {key: value for key, value in where.items() if value is not None}
    with _interruptible(run), watching(quiet=quiet) as callbacks:
        done = runs.resume(run, callbacks=callbacks, engine=chosen, episodes=episodes)
    _show_policy(done, as_json) if done.pretrains else _show_run(done, as_json)


@app.command(epilog="Example: fedtailor pretrain pfedrlla scenario.toml --rounds 100, then --set method.policy=...")
def pretrain(
    method: Annotated[str, typer.Argument(metavar="METHOD", help="A method with an agent.")],
    scenario: Annotated[
        Path | None, typer.Argument(metavar="SCENARIO.toml", help="An experiment to learn on; without it, digits.")
    ] = None,
    sets: Sets = None,
    name: Name = None,
    episodes: Annotated[int | None, typer.Option(help="Whole federations, one after the other.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of every random stream.")] = None,
    rounds: Rounds = None,
    data_dir: DataDir = None,
    workers: Workers = None,
    engine: EngineKind = None,
    out: Annotated[Path, typer.Option(help="Folder in which the policy gets its folder.")] = Path("policies"),
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a method's agent on a scenario, and keep its policy for other runs.

    The scenario's settings of the method stay, if it is about the same method. Ctrl-C stops at a round boundary;
    'fedtailor resume' goes on.
    """
    known = _settings(scenario, [])
    from fedtailor.methods import spec

    changes = [_change("method", {"name": method})] if spec(known.method) != method else []
    changes += [_change("seed", seed), _change("rounds", rounds), _change("pretrain.episodes", episodes)]
    settings = _settings(scenario, [*changes, *_where(name, data_dir, workers, engine)], sets)
    from fedtailor import runs
    from fedtailor.views.progress import watching

    place = out / settings.name
    with _interruptible(place), watching(quiet=quiet) as callbacks:
        done = runs.pretrain(settings, folder=place, callbacks=callbacks)
    _show_policy(done, as_json)


@app.command(epilog="Example: fedtailor compare experiment.toml --methods local,fedavg,fedper --seeds 0,1,2")
def compare(
    experiment: ExperimentFile = None,
    methods: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="The methods, or the file's labels, with commas.")
    ] = None,
    seeds: Annotated[str | None, typer.Option(metavar="N,N,...", help="The seeds, with commas.")] = None,
    sets: Sets = None,
    name: Name = None,
    rounds: Rounds = None,
    metric: Annotated[Metric | None, typer.Option(help="The headline of the table.")] = None,
    pooled: Annotated[bool, typer.Option("--pooled", help="Average over samples, not over clients.")] = False,
    data_dir: DataDir = None,
    workers: Workers = None,
    engine: EngineKind = None,
    out: RunsFolder = Path("runs"),
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run every method with every seed and make a table.

    The same command again goes on where it stopped. EXPERIMENT.toml may name the methods and seeds.
    """
    changes = [
        _change("rounds", rounds),
        _change("compare.methods", _split(methods)),
        _change("compare.seeds", _whole_numbers("--seeds", _split(seeds))),
        _change("compare.metric", metric),
        _change("compare.pooled", pooled or None),
    ]
    settings = _by_label(_settings(experiment, [*changes, *_where(name, data_dir, workers, engine)], sets), experiment)
    from fedtailor.runs.comparing import default_folder

    _compare(settings, out / settings.name if name else default_folder(settings, out), as_json, quiet)


@app.command(epilog="Example: fedtailor publish runs/demo-comparison docs/results --name demo")
def publish(
    comparison: Annotated[Path, typer.Argument(metavar="COMPARISON", help="The folder of a comparison.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the page and the picture go.")],
    name: Annotated[str | None, typer.Option(help="Name of the page; that of the experiment by default.")] = None,
    as_json: Json = False,
) -> None:
    """Write a comparison as a page of Markdown: table, picture, settings, versions, time."""
    from fedtailor.runs import Comparison
    from fedtailor.views import console
    from fedtailor.views.publishing import publish as write

    written = [str(path) for path in write(Comparison(comparison), folder, name)]
    console.show_json({"written": written}) if as_json else console.show(f"written: {', '.join(written)}")


@app.command("list", epilog="Example: fedtailor list runs")
def list_command(
    runs_dir: Annotated[Path, typer.Argument(metavar="RUNS_DIR", help="Folder with runs.")] = Path("runs"),
    as_json: Json = False,
) -> None:
    """List the runs below a folder."""
    from fedtailor.runs import all_runs
    from fedtailor.views import console, pages

    lines = pages.run_lines(runs_dir, all_runs(runs_dir))
    if as_json:
        console.show_json(lines)
    else:
        console.show(pages.list_page(lines) if lines else f"no runs in {runs_dir}; start one with: fedtailor run")


@app.command(epilog="Example: fedtailor show runs/experiment --clients")
def show(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run or of a comparison.")],
    clients: Annotated[bool, typer.Option("--clients", help="Also each client's accuracy.")] = False,
    as_json: Json = False,
) -> None:
    """Show what a run or a comparison has recorded so far."""
    from fedtailor.runs import Comparison, Run
    from fedtailor.views import console, pages

    if _is_comparison(run):
        summary = Comparison(run).summary()
        shown = pages.comparison_page(summary, console.results().width)
        console.show_json(summary.as_dict()) if as_json else console.show(shown)
        return
    with Run(run) as found:
        if as_json:
            console.show_json(pages.run_document(found, clients))
        else:
            console.show(pages.run_page(found, clients))


@app.command(epilog="Example: fedtailor draw runs/experiment --out pictures")
def draw(
    run: RunFolder,
    out: Annotated[Path | None, typer.Option(help="Where they go; default: drawings in the run's folder.")] = None,
    ending: Annotated[Literal["png", "svg", "pdf"], typer.Option("--format", help="What is written.")] = "png",
    as_json: Json = False,
) -> None:
    """Draw the curves of a run and what its method has to show: groups, weights, decisions."""
    from fedtailor.runs import Run
    from fedtailor.views import console
    from fedtailor.views.drawings import draw as draw_all

    place = out or run / "drawings"
    with Run(run) as found, _writing(place):
        written = [str(path) for path in draw_all(found, place, ending)]
    console.show_json({"written": written}) if as_json else console.show(*written)


@app.command(epilog="Example: fedtailor methods fedprox")
def methods(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="One method, in full.")] = None,
    as_json: Json = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="All cards as a page of Markdown.")] = False,
) -> None:
    """List the methods, or show one with its settings."""
    from fedtailor.methods import catalogue, find
    from fedtailor.views import console, pages

    if name is not None:
        facts = pages.method_facts(find(name))
        console.show_json(facts) if as_json else console.show(pages.method_card(facts))
        return
    every = [pages.method_facts(kind) for kind in catalogue().values()]
    if markdown:
        from fedtailor.views.publishing import methods_document

        sys.stdout.write(methods_document(every))
        return
    console.show_json(every) if as_json else console.show(pages.methods_page(every))


@app.command(epilog="Example: fedtailor models --json")
def models(as_json: Json = False) -> None:
    """List the networks with their numbers of parameters and multiply-adds."""
    from fedtailor.models import cards
    from fedtailor.views import console, pages

    every = cards()
    console.show_json(pages.models_document(every)) if as_json else console.show(pages.models_page(every))


@data_app.command("list", epilog="Example: fedtailor data list --data-dir data")
def data_list(data_dir: DataDir = None, as_json: Json = False) -> None:
    """List the known data sets and whether their files are there."""
    from fedtailor.data import SOURCES
    from fedtailor.data.settings import data_directory
    from fedtailor.views import console, pages

    lines = pages.source_lines(SOURCES, data_directory(data_dir))
    if as_json:
        console.show_json(lines)
    else:
        console.show(pages.sources_page(lines, data_directory(data_dir)))


@data_app.command("get", epilog="Example: fedtailor data get mnist --from https://mirror.example/mnist/")
def data_get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name of 'fedtailor data list'.")],
    data_dir: DataDir = None,
    addresses: Annotated[
        list[str] | None,
        typer.Option("--from", metavar="ADDRESS", help="A mirror that holds the files; may be repeated."),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Download a data set; a broken download goes on where it stopped."""
    from fedtailor.data.downloads import get
    from fedtailor.data.settings import data_directory
    from fedtailor.views import console
    from fedtailor.views.downloads import downloading

    with downloading(quiet=quiet) as progress:
        files = get(name, data_directory(data_dir), progress, addresses or None)
    if as_json:
        console.show_json({"name": name, "files": [str(file) for file in files]})
    elif files:
        console.show(*(str(file) for file in files), f"next: fedtailor data show --set data.source={name}")
    else:
        console.show(f"{name} comes with FedTailor: nothing to download")


@data_app.command("show", epilog="Example: fedtailor data show experiment.toml --set data.clients=50 --out p.png")
def data_show(
    experiment: ExperimentFile = None,
    sets: Sets = None,
    data_dir: DataDir = None,
    out: Annotated[Path, typer.Option(help="The picture: a png, svg or pdf file.")] = Path("partition.png"),
    as_json: Json = False,
) -> None:
    """Draw who has how many samples of which class."""
    if out.suffix not in (".png", ".svg", ".pdf"):
        raise typer.BadParameter(f"{out} does not end in .png, .svg or .pdf.", param_hint="--out")
    settings = _settings(experiment, _where(None, data_dir, None, None), sets)
    from fedtailor.data import picture
    from fedtailor.runs import Resources
    from fedtailor.views import console, pages

    federation = Resources().federation(settings)
    with _writing(out):
        picture.draw(federation, out)
    summary, rows = picture.summary(federation), picture.table(federation)
    if as_json:
        console.show_json({**summary, "table": rows, "picture": str(out)})
    else:
        console.show(pages.federation_page(summary, rows), f"picture: {out}")


@data_app.command("deal", epilog="Example: fedtailor data deal experiment.toml --out clients")
def data_deal(
    experiment: ExperimentFile = None,
    sets: Sets = None,
    data_dir: DataDir = None,
    out: Annotated[Path, typer.Option(help="The folder to write.")] = Path("clients"),
    as_json: Json = False,
) -> None:
    """Write every client's samples into a file of its own, as 'fedtailor join' reads them."""
    settings = _settings(experiment, _where(None, data_dir, None, None), sets)
    from fedtailor.data.folder import write_clients
    from fedtailor.runs import Resources
    from fedtailor.views import console

    if out.exists():
        raise UserError(f"{out} exists: name another folder with --out")
    federation = Resources().federation(settings)
    with _writing(out):
        written = [str(path) for path in write_clients(federation, out)]
    if as_json:
        console.show_json({"written": written})
    else:
        console.show(f"written: {written[0]} to {written[-1]}", f"next: fedtailor join --data {written[0]} ...")


@app.command(epilog="Example: fedtailor serve experiment.toml --keys keys --port 8000")
def serve(
    experiment: ExperimentFile = None,
    sets: Sets = None,
    name: Name = None,
    keys: Annotated[
        Path | None, typer.Option(help="The folder of 'fedtailor keys init'; needed unless --insecure is said.")
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "0.0.0.0",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port for nodes; 0: one that is free.")] = 8000,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="No TLS, no keys: everybody may listen and take part.")
    ] = False,
    out: RunsFolder = Path("runs"),
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Coordinate a real federation: wait for its nodes, then run an experiment with them.

    data.clients says for how many nodes to wait; each joins with 'fedtailor join'. The same command again goes on
    from the last complete round.
    """
    settings = _settings(experiment, [_change("name", name)], sets)
    _secured(keys, insecure)
    from fedtailor.flower.coordinator.serving import serve as coordinate
    from fedtailor.views.progress import watching

    place = out / settings.name
    with (
        _sigterm_as_ctrl_c(),
        _interruptible(place, f"fedtailor serve {experiment or ''} ..."),
        watching(quiet=quiet) as callbacks,
    ):
        done = coordinate(
            settings, place, host=host, port=port, keys=None if insecure else keys, callbacks=callbacks, say=_say(quiet)
        )
    _show_run(done, as_json)


@app.command(epilog="Example: fedtailor join --coordinator c.example:8000 --keys keys/nodes/anna --data anna.npz")
def join(
    coordinator: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where 'fedtailor serve' listens.")],
    data: Annotated[
        str,
        typer.Option(
            metavar="PATH_OR_MODULE", help="This node's data: a folder, a file .npz or .csv, or module:function."
        ),
    ],
    state: Annotated[Path, typer.Option(help="Folder for what this node keeps: its states and its model.")],
    keys: Annotated[
        Path | None, typer.Option(help="This node's folder of keys, keys/nodes/NAME; needed unless --insecure is said.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="This node's name; by default that of its folder of keys.")] = None,
    device: Annotated[str, typer.Option(help="The torch device to train on.")] = "cpu",
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE:CLASS", help="Code of this machine that the coordinator may name; repeatable."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End when a run is finished, instead of waiting.")] = False,
    insecure: Annotated[bool, typer.Option("--insecure", help="No TLS, no keys: do not use it in earnest.")] = False,
    quiet: Quiet = False,
) -> None:
    """Take part in a federation with the data of this machine, which never leave it.

    Ctrl-C leaves; the same command again comes back with the same state.
    """
    _secured(keys, insecure)
    from fedtailor.flower.node.joining import join as take_part

    take_part(
        coordinator,
        data,
        state,
        name=name,
        keys=None if insecure else keys,
        device=device,
        allowed=tuple(allow or ()),
        once=once,
        say=_say(quiet),
    )


@keys_app.command("init", epilog="Example: fedtailor keys init keys --host coordinator.example --node anna")
def keys_init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder to write.")] = Path("keys"),
    hosts: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="HOST", help="A name or address of the coordinator; may be repeated."),
    ] = None,
    nodes: Annotated[
        list[str] | None, typer.Option("--node", metavar="NAME", help="A node that may take part; may be repeated.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make an authority, the coordinator's certificate and a key for every node."""
    _needs_flower()
    from fedtailor.flower import keys
    from fedtailor.views import console

    with _writing(folder):
        written = [str(path) for path in keys.init(folder, hosts or [], nodes or [])]
    if as_json:
        console.show_json({"written": written})
        return
    console.show(
        f"written to {folder}: keep ca.key and server.key to yourself",
        *(f"copy {folder}/nodes/{node} to the node {node}, and to nobody else" for node in nodes or []),
    )


@keys_app.command("add", epilog="Example: fedtailor keys add keys carla")
def keys_add(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of 'fedtailor keys init'.")],
    node: Annotated[str, typer.Argument(metavar="NAME", help="The node that may take part.")],
    as_json: Json = False,
) -> None:
    """Make the key of another node; the coordinator knows it when it is started next."""
    _needs_flower()
    from fedtailor.flower import keys
    from fedtailor.views import console

    with _writing(folder):
        written = str(keys.add(folder, node))
    console.show_json({"written": written}) if as_json else console.show(f"copy {written} to the node {node}")


@app.command(epilog="Example: fedtailor devices experiment.toml --set devices.profiles=tiers")
def devices(
    experiment: ExperimentFile = None, sets: Sets = None, data_dir: DataDir = None, as_json: Json = False
) -> None:
    """Show what every client's device can do, and what an epoch takes it."""
    settings = _settings(experiment, _where(None, data_dir, None, None), sets)
    from fedtailor.runs import Resources, describe_devices
    from fedtailor.views import console, pages

    document = describe_devices(settings, Resources())
    console.show_json(document) if as_json else console.show(pages.devices_page(document))


@app.command(epilog="Example: fedtailor export runs/experiment --client 3 --out client-3")
def export(
    run: RunFolder,
    client: Annotated[int | None, typer.Option(help="The client whose model is wanted.")] = None,
    of_server: Annotated[bool, typer.Option("--global", help="The server's model.")] = False,
    model: Annotated[str, typer.Option(help="With --global: which of the server's models.")] = "global",
    out: Annotated[Path | None, typer.Option(help="The folder to write; default: in the run's folder.")] = None,
    as_json: Json = False,
) -> None:
    """Write a trained model as safetensors weights and a JSON card."""
    if (client is None) == (not of_server):
        raise typer.BadParameter("name either --client N or --global.", param_hint="export")
    from fedtailor.runs import export_client, export_global
    from fedtailor.views import console

    place = out or run / "exports" / (model if client is None else f"client-{client}")
    written = export_global(run, place, model) if client is None else export_client(run, client, place)
    lines = ["import fedtailor", f"model = fedtailor.load_model({str(written)!r})"]
    if as_json:
        console.show_json({"folder": str(written), "load": lines})
    else:
        console.show(f"written to {written}; load it in Python with:", *(f"    {line}" for line in lines))


@app.command(epilog="Example: fedtailor new experiment.toml")
def new(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")] = Path("experiment.toml"),
) -> None:
    """Write an experiment to begin with; a file that exists is not touched."""
    from fedtailor.views.starter import starter

    with _writing(file), file.open("x", encoding="utf-8") as text:
        text.write(starter(str(file)))
    typer.echo(f"written to {file}; start it with: fedtailor run {file}")


@app.command(epilog="Example: fedtailor version")
def version() -> None:
    """Show the version."""
    typer.echo(f"fedtailor {__version__}")


def _help_if_alone(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


# From options to settings


def _settings(source: Path | None, changes: list[str | None], sets: list[str] | None = None) -> "Experiment":
    """The experiment with the options applied, then with what --set says."""
    from fedtailor.runs import experiment

    return experiment(source, [*(change for change in changes if change is not None), *(sets or [])])


def _by_label(settings: "Experiment", source: Path | None) -> "Experiment":
    """The experiment with the file's own methods in the place of their labels."""
    methods = [method for method in _settings(source, []).compare.methods if isinstance(method, dict)]
    labelled = {label: method for method in methods if isinstance(label := method.get("label"), str)}
    chosen = tuple(labelled.get(m, m) if isinstance(m, str) else m for m in settings.compare.methods)
    return settings.model_copy(update={"compare": settings.compare.model_copy(update={"methods": chosen})})


def _where(name: str | None, data_dir: Path | None, workers: int | None, engine: Engine | None) -> list[str | None]:
    return [
        _change("name", name),
        _change("data.dir", data_dir and str(data_dir)),
        _change("engine.workers", workers),
        _change("engine.kind", engine),
    ]


def _change(key: str, value: Any) -> str | None:
    """An option as the text that --set takes; None if it was not given."""
    if value is None:
        return None
    if isinstance(value, dict):
        return f"{key}={{{', '.join(f'{k} = {json.dumps(v)}' for k, v in value.items())}}}"
    return f"{key}={json.dumps(value)}"  # TOML and JSON write these values alike


def _split(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def _whole_numbers(option: str, texts: list[str] | None) -> list[int] | None:
    try:
        return None if texts is None else [int(text) for text in texts]
    except ValueError:
        raise typer.BadParameter("write whole numbers with commas, as in 0,1,2.", param_hint=option) from None


# What several commands share


def _show_run(run: "Run", as_json: bool) -> None:
    from fedtailor.views import console, pages
    from fedtailor.views.report import write_report

    with run:
        with _writing(run.folder):
            written = write_report(run)
        if as_json:
            console.show_json(pages.run_document(run))
            return
        console.show(pages.run_page(run), f"curves and report: {', '.join(map(str, written))}")
        export = "--global" if run.nodes else "--client 0"
        console.show(f"next: fedtailor show {run.folder} --clients", f"      fedtailor export {run.folder} {export}")


def _show_policy(run: "Run", as_json: bool) -> None:
    from fedtailor.views import console, pages
    from fedtailor.views.rewards import rewards_figure

    picture = run.folder / "rewards.png"
    with run:
        with _writing(run.folder):
            rewards_figure(run).savefig(picture)
        if as_json:
            console.show_json({**pages.run_document(run), "policy": str(run.folder), "picture": str(picture)})
            return
        console.show(pages.run_page(run), f"policy: {run.folder}", f"rewards: {picture}")
        console.show(f"next: fedtailor run experiment.toml --set method.policy={run.folder}")


def _compare(settings: "Experiment", place: Path, as_json: bool, quiet: bool) -> None:
    from fedtailor.runs import Comparison, compare
    from fedtailor.views.console import messages
    from fedtailor.views.progress import watching

    kept = Comparison(place).finished() if _is_comparison(place) else []
    if kept:
        messages().print(f"finished before, not run again: {', '.join(kept)}")
    runs = len(settings.compare.methods) * len(settings.compare.seeds) - len(kept)
    with _interruptible(place), watching(quiet=quiet, runs=runs) as callbacks:
        done = compare(settings, folder=place, callbacks=callbacks)
    _show_comparison(done, as_json)


def _show_comparison(comparison: "Comparison", as_json: bool) -> None:
    from fedtailor.views import console, pages
    from fedtailor.views.curves import draw_comparison
    from fedtailor.views.tables import write_comparison

    with _writing(comparison.folder):
        tables = write_comparison(comparison)
        curves = [draw_comparison(comparison, comparison.folder / "curves.png")]
        if comparison.experiment.devices is not None:
            curves.append(draw_comparison(comparison, comparison.folder / "curves-time.png", over="time"))
    summary = comparison.summary()
    if as_json:
        console.show_json({**summary.as_dict(), "written": [str(path) for path in (*tables, *curves)]})
        return
    console.show(
        pages.comparison_page(summary, console.results().width),
        f"tables: {', '.join(map(str, tables))}",
        f"plot:   {', '.join(map(str, curves))}",
    )
    console.show(f"next:   fedtailor list {comparison.folder}")


def _is_comparison(folder: Path) -> bool:
    from fedtailor.runs.comparing import PLAN

    return (folder / PLAN).is_file()


def _needs_flower() -> None:
    from fedtailor.flower.programs import require

    require()


def _secured(keys: Path | None, insecure: bool) -> None:
    """Insist on keys, or on the word for going without them."""
    _needs_flower()
    if insecure:
        typer.echo("warning: --insecure: whoever reaches this port can read, change and join", err=True)
    elif keys is None:
        raise UserError("name the folder of keys with --keys (made by 'fedtailor keys init'), or say --insecure")


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    """What was started must be ended: by default SIGTERM would leave it behind."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _say(quiet: bool) -> Callable[[str], None]:
    from fedtailor.views.console import messages

    return (lambda sentence: None) if quiet else (lambda sentence: messages().print(sentence, highlight=False))


@contextmanager
def _interruptible(place: Path, command: str = "") -> Iterator[None]:
    """A run that the user ended is at its last complete round: say how to go on."""
    from fedtailor.runs import Interrupted

    try:
        yield
    except (Interrupted, KeyboardInterrupt) as end:
        how = "stopped at a round boundary" if isinstance(end, Interrupted) else "stopped at once"
        further = f"; go on with: {command or f'fedtailor resume {place}'}" if place.exists() else ""
        typer.echo(f"{how}{further}", err=True)
        raise typer.Exit(STOPPED) from None


@contextmanager
def _writing(place: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError:
        raise UserError(f"{place} exists: name another file") from None
    except OSError as error:
        raise UserError(f"{error.filename or place} cannot be written: {error.strerror}") from None
