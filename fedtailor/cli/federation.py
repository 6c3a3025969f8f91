"""Commands of a real federation: serve, join, keys."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedtailor.cli.interrupts import interruptible, sigterm_as_ctrl_c
from fedtailor.cli.options import ExperimentFile, Json, Name, Quiet, RunsFolder, Sets, options_of
from fedtailor.cli.settings import parse_set, settings_from, shared_options
from fedtailor.errors import UserError

if TYPE_CHECKING:
    from fedtailor.data.readers import Roles
    from fedtailor.flower.node.policy import Policy

commands = typer.Typer()
keys_commands = typer.Typer(
    help="Keys of a federation: which nodes may take part, and how nodes recognise their coordinator.",
    epilog="Example: fedtailor keys add keys bert",
)


@commands.command(epilog="Example: fedtailor serve experiment.toml --keys keys --port 8000")
def serve(
    experiment: ExperimentFile = None,
    sets: Sets = None,
    name: Name = None,
    keys: Annotated[
        Path | None, typer.Option(help="The folder of 'fedtailor keys init'; required without --insecure.")
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "0.0.0.0",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port for nodes; 0 picks a free one.")] = 8000,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="No TLS and no keys: anyone can listen and take part. For testing only.")
    ] = False,
    out: RunsFolder = Path("runs"),
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Coordinate a real federation: wait for its nodes, then run an experiment with them.

    The command waits for data.clients nodes; each node joins with 'fedtailor join'. The same command resumes a
    stopped federation from its last complete round.
    """
    settings = settings_from(experiment, shared_options(name=name), sets)
    _require_keys(keys, insecure)
    from fedtailor.flower.coordinator import serving
    from fedtailor.views.progress import progress
    from fedtailor.views.results import show_run

    folder = out / settings.name
    with (
        sigterm_as_ctrl_c(),
        interruptible(folder, f"fedtailor serve {experiment or ''} ..."),
        progress(quiet=quiet) as callbacks,
    ):
        done = serving.serve(
            settings,
            folder,
            host=host,
            port=port,
            keys=None if insecure else keys,
            callbacks=callbacks,
            say=_printer(quiet),
        )
    show_run(done, as_json)


@dataclass(frozen=True)
class Limits:
    """The options by which a node's owner limits what the coordinator may ask for."""

    methods: Annotated[
        str | None, typer.Option(metavar="NAME,NAME", help="Take part only in these methods; default: all.")
    ] = None
    no_peers: Annotated[
        bool, typer.Option("--no-peers", help="Refuse methods that may show this node's models to other clients.")
    ] = False
    smallest_cohort: Annotated[
        int, typer.Option(min=1, help="Refuse rounds with fewer clients than this, as the coordinator counts them.")
    ] = 1
    largest_epsilon: Annotated[
        float | None,
        typer.Option(min=0, help="Refuse runs without differential privacy, or if their total epsilon exceeds this."),
    ] = None

    def policy(self) -> "Policy":
        """The policy of a node; a name that is no method would permit nothing, so it is a mistake."""
        _require_flower()
        from fedtailor.flower.node.policy import Policy
        from fedtailor.methods import catalogue
        from fedtailor.runs.accounting import check_installed

        names = frozenset(name.strip() for name in (self.methods or "").split(",") if name.strip())
        if unknown := sorted(name for name in names if ":" not in name and name not in catalogue()):
            raise UserError(f"--methods: there is no method {unknown[0]!r}; 'fedtailor methods' lists them")
        if self.methods is not None and not names:
            raise UserError("--methods names no method: leave it out, or name one")
        if self.largest_epsilon is not None:
            check_installed("--largest-epsilon")
        return Policy(names, not self.no_peers, self.smallest_cohort, self.largest_epsilon)


@commands.command(
    epilog="Example: fedtailor join --coordinator c.example:8000 --keys keys/nodes/anna --data anna.npz --state anna"
)
@options_of(Limits)
def join(
    limits: Limits,
    coordinator: Annotated[str, typer.Option(metavar="HOST:PORT", help="The address where 'fedtailor serve' listens.")],
    data: Annotated[
        str,
        typer.Option(
            metavar="PATH_OR_MODULE", help="This node's data: a folder, a .npz or .csv file, or module:function."
        ),
    ],
    state: Annotated[Path, typer.Option(help="Folder where this node stores its states and its model.")],
    keys: Annotated[
        Path | None, typer.Option(help="This node's folder of keys, keys/nodes/NAME; required without --insecure.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="This node's name; default: the name of its folder of keys.")] = None,
    device: Annotated[str, typer.Option(help="The torch device to train on.")] = "cpu",
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE:CLASS", help="Code on this machine that the coordinator may use; may be repeated."
        ),
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="How to read a CSV file, as in data.label=died; repeatable."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List what would leave this machine, and send nothing.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="Exit when a run is finished, instead of waiting.")] = False,
    insecure: Annotated[bool, typer.Option("--insecure", help="No TLS and no keys. For testing only.")] = False,
    quiet: Quiet = False,
) -> None:
    """Take part in a federation with the data of this machine, which never leave it.

    Ctrl-C leaves the federation; the same command rejoins it with the same state.
    """
    if not dry_run:
        _require_keys(keys, insecure)
    policy = limits.policy()
    if dry_run:
        from fedtailor.flower.node.dry_run import what_leaves
        from fedtailor.views import console

        console.show(*what_leaves(data, _roles(sets or ()), policy))
        return
    from fedtailor.engines import usable_device
    from fedtailor.flower.node import joining

    joining.join(
        coordinator,
        data,
        state,
        name=name,
        keys=None if insecure else keys,
        device=usable_device(device, "--device"),
        allowed=tuple(allow or ()),
        roles=_roles(sets or ()),
        policy=policy,
        once=once,
        say=_printer(quiet),
    )


@keys_commands.command(epilog="Example: fedtailor keys init keys --host coordinator.example --node anna")
def init(
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
    _require_flower()
    from fedtailor.flower import keys
    from fedtailor.views import console
    from fedtailor.views.files import writing

    with writing(folder):
        written = [str(path) for path in keys.init(folder, hosts or [], nodes or [])]
    if as_json:
        console.show_json({"written": written})
        return
    console.show(
        f"written to {folder}: keep ca.key and server.key secret",
        *(f"copy {folder}/nodes/{node} to the node {node}, and to no other machine" for node in nodes or []),
    )


@keys_commands.command(epilog="Example: fedtailor keys add keys carla")
def add(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of 'fedtailor keys init'.")],
    node: Annotated[str, typer.Argument(metavar="NAME", help="The node that may take part.")],
    as_json: Json = False,
) -> None:
    """Make the key of another node; the coordinator reads it when it starts next."""
    _require_flower()
    from fedtailor.flower import keys
    from fedtailor.views import console
    from fedtailor.views.files import writing

    with writing(folder):
        written = str(keys.add(folder, node))
    console.show_json({"written": written}) if as_json else console.show(f"copy {written} to the node {node}")


@keys_commands.command(epilog="Example: fedtailor keys request my-key")
def request(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder to write, on the node.")],
    as_json: Json = False,
) -> None:
    """Make a node's own key, on the node: its private key never leaves the machine."""
    _require_flower()
    from fedtailor.flower import keys
    from fedtailor.views import console
    from fedtailor.views.files import writing

    with writing(folder):
        mark = keys.request(folder)
    if as_json:
        console.show_json({"public": str(folder / "node.pub"), "fingerprint": mark})
        return
    console.show(
        f"send {folder}/node.pub to the coordinator's administrator, and tell the fingerprint by another way:",
        mark,
        f"then put the coordinator's ca.pem into {folder}",
    )


@keys_commands.command(
    epilog="Example: fedtailor keys approve keys my-key/node.pub --name dora --fingerprint FINGERPRINT"
)
def approve(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of 'fedtailor keys init'.")],
    public: Annotated[Path, typer.Argument(metavar="NODE.PUB", help="The public key that the node made.")],
    name: Annotated[str, typer.Option(help="The node's name.")],
    fingerprint: Annotated[str, typer.Option(help="The fingerprint that the node's owner told you.")],
    days: Annotated[int | None, typer.Option(min=1, help="Expire after this many days; default: never.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace the key that the node has.")] = False,
) -> None:
    """Let a node take part with a key that it made; a coordinator that runs takes it up."""
    _require_flower()
    from fedtailor.flower import keys
    from fedtailor.views import console
    from fedtailor.views.files import writing

    with writing(folder):
        place = keys.approve(folder, public, name, fingerprint, days, replace)
    console.show(f"{name} may take part; it needs {place}/ca.pem")


@keys_commands.command(epilog="Example: fedtailor keys revoke keys anna")
def revoke(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of 'fedtailor keys init'.")],
    node: Annotated[str, typer.Argument(metavar="NAME", help="The node to exclude.")],
) -> None:
    """Exclude a node; a coordinator that runs notices within seconds."""
    _require_flower()
    from fedtailor.flower import keys
    from fedtailor.views import console
    from fedtailor.views.files import writing

    with writing(folder):
        keys.revoke(folder, node)
    console.show(f"{node} may not take part any more")


@keys_commands.command("audit", epilog="Example: fedtailor keys audit keys")
def show_audit(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The coordinator's folder of keys.")],
    as_json: Json = False,
) -> None:
    """Show who was registered, revoked and refused, and check that the log was not changed."""
    from fedtailor.flower import audit
    from fedtailor.views import console

    file = folder / audit.FILE
    events = audit.verified(file) if file.exists() or not folder.is_dir() else []  # no coordinator has run yet
    if as_json:
        console.show_json({"events": events})
        return
    console.show(
        *(f"{e['time']} {e['event']} {e['who']} {e['key']} {e.get('reason', '')}".rstrip() for e in events),
        f"{len(events)} events, unchanged; the last digest is {events[-1]['digest'] if events else audit.FIRST}",
    )


def _require_flower() -> None:
    from fedtailor.flower.programs import require

    require()


def _require_keys(keys: Path | None, insecure: bool) -> None:
    """Fail without keys, unless the user chose --insecure."""
    _require_flower()
    if insecure and keys is not None:
        raise UserError("--insecure uses no keys: give --keys or --insecure, not both")
    if insecure:
        typer.echo("warning: --insecure: anyone who reaches this port can read, change and join", err=True)
    elif keys is None:
        raise UserError("name the folder of keys with --keys (made by 'fedtailor keys init'), or use --insecure")


def _printer(quiet: bool) -> Callable[[str], None]:
    """Return a function that prints a sentence on stderr, or does nothing."""
    from fedtailor.views.console import messages

    return (lambda sentence: None) if quiet else (lambda sentence: messages().print(sentence, highlight=False))


def _roles(sets: Iterable[str]) -> "Roles":
    """What the columns of a node's table are for; a node chooses nothing else."""
    from fedtailor.data.readers import Roles

    known = [f"data.{name}" for name in vars(Roles()) if name != "client"]
    for key, _ in map(parse_set, sets):
        if key not in known:
            raise UserError(
                f"--set {key}: a node chooses only {', '.join(known)}; the coordinator has all other settings"
            )
    return settings_from(None, {"data.source": "folder"}, sets).data.roles
