"""The exports of a run: a client's model, those of all clients, and those of the server."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from fedtailor.data import Federation
from fedtailor.errors import UserError
from fedtailor.runs.drafts import folder_at_once
from fedtailor.runs.exporting.finding import NoModel, RunModels
from fedtailor.runs.exporting.formats import chosen_formats
from fedtailor.runs.exporting.writing import Deployable, is_of_exports, write_files, write_model

DEFAULT = ("safetensors",)
Progress = Callable[[int, int], None]  # models written so far, and of how many


@dataclass(frozen=True)
class Exported:
    """Several exports.

    Attributes
    ----------
    folder : Path
        The folder that holds them.
    models : dict of str to Path
        The folder of each model, by the name of the client or of the server's model.
    missing : dict of str to str
        Why a client has no model, by its name.
    """

    folder: Path
    models: dict[str, Path]
    missing: dict[str, str]


def export_client(
    run: str | Path,
    client: int | str,
    target: str | Path,
    *,
    formats: Iterable[str] = DEFAULT,
    licence: str | None = None,
    federation: Federation | None = None,
) -> Path:
    """Write the model that a client would deploy: the one that the final pass scored.

    The final pass stores these models (``evaluation.keep_models``). Otherwise the client receives and trains once
    more on the data of the run, which gives the same model; other data are refused.

    Parameters
    ----------
    run : str or Path
        The folder of the run.
    client : int or str
        The number of the client, or its name.
    target : str or Path
        The folder to write, which must not exist.
    formats : iterable of str, optional
        Of ``safetensors``, ``torch`` and ``onnx``. The programs ``torch`` and ``onnx`` hold pre-processing and
        calibration, and are compared with the model on the client's samples, or on made-up ones if these are not here.
    licence : str, optional
        The licence of the model, for its card.
    federation : Federation, optional
        The clients' data, if the run began with the caller's and did not store its models.

    Returns
    -------
    Path
        The folder, with the model in its formats, ``card.json`` and ``MODEL_CARD.md``.

    Raises
    ------
    UserError
        If there is no such model, or it cannot be written. Nothing is written then.

    Examples
    --------
    >>> folder = fedtailor.export_client("runs/first", 3, "exports/client-3")
    >>> sorted(file.name for file in folder.iterdir())
    ['MODEL_CARD.md', 'card.json', 'model.safetensors']
    """
    chosen = chosen_formats(formats)
    with RunModels(run, federation) as models:
        return write_model(Path(target), models.personal(models.client(client)), chosen, licence)


def export_clients(
    run: str | Path,
    target: str | Path,
    *,
    formats: Iterable[str] = DEFAULT,
    licence: str | None = None,
    federation: Federation | None = None,
    progress: Progress | None = None,
) -> Exported:
    """Write the models of all clients, as `export_client` does, into one folder.

    Parameters
    ----------
    run, target, formats, licence, federation
        As in `export_client`; ``target`` gets a folder for each client.
    progress : callable, optional
        Called after each model with the number of models so far and of all.

    Returns
    -------
    Exported
        The folders by client, and why a client has no model.

    Examples
    --------
    >>> done = fedtailor.export_clients("runs/first", "exports/all")
    >>> len(done.models), done.models["3"].name, done.missing
    (20, 'client-3', {})
    """
    chosen, place = chosen_formats(formats), Path(target)
    with RunModels(run, federation) as models, folder_at_once(place, is_of_exports) as draft:
        folders: dict[str, Path] = {}
        missing: dict[str, str] = {}
        for done, client in enumerate(models.clients, 1):
            label = models.name(client) or str(client)
            try:
                found = models.personal(client)
            except NoModel as error:
                missing[label] = str(error)
            else:
                folders[label] = place / _written(draft, _folder_of(models, client), found, chosen, licence)
            if progress is not None:
                progress(done, len(models.clients))
        if not folders:
            raise UserError(f"{run} has no client with a model: {next(iter(missing.values()), 'it has no clients')}")
    return Exported(place, folders, missing)


def export_global(
    run: str | Path,
    target: str | Path,
    model: str = "global",
    *,
    formats: Iterable[str] = DEFAULT,
    licence: str | None = None,
) -> Path:
    """Write a model of the server. The clients' data are not needed.

    Parameters
    ----------
    run : str or Path
        The folder of the run.
    target : str or Path
        The folder to write, which must not exist.
    model : str, optional
        The name of the model, for a method whose server holds several, such as ``group/0``.
    formats, licence
        As in `export_client`; programs are compared with the model on made-up samples.

    Returns
    -------
    Path
        The folder, with the model in its formats, ``card.json`` and ``MODEL_CARD.md``.

    Examples
    --------
    >>> folder = fedtailor.export_global("runs/first-comparison/fedavg-s0", "exports/fedavg")
    >>> sorted(file.name for file in folder.iterdir())
    ['MODEL_CARD.md', 'card.json', 'model.safetensors']
    """
    chosen = chosen_formats(formats)
    with RunModels(run) as models:
        held = models.server()
        return write_model(Path(target), held[_named(models, held, model)], chosen, licence)


def export_server(
    run: str | Path,
    target: str | Path,
    *,
    formats: Iterable[str] = DEFAULT,
    licence: str | None = None,
    progress: Progress | None = None,
) -> Exported:
    """Write all models of the server into one folder: the global model, those of groups, those of sizes.

    Parameters
    ----------
    run : str or Path
        The folder of the run.
    target : str or Path
        The folder to write, which must not exist. Each model gets a folder in it.
    formats, licence
        As in `export_global`.
    progress : callable, optional
        Called with the number of finished models and of all.

    Returns
    -------
    Exported
        The folder of each model by its name.

    Examples
    --------
    >>> exported = fedtailor.export_server("runs/first-comparison/fedavg-s0", "exports/server")
    >>> list(exported.models)
    ['global']
    """
    chosen, place = chosen_formats(formats), Path(target)
    with RunModels(run) as models, folder_at_once(place, is_of_exports) as draft:
        held = models.server()
        if not held:
            _named(models, held, "global")
        folders = {}
        for done, (name, found) in enumerate(held.items(), 1):
            folders[name] = place / _written(draft, folder_name(name), found, chosen, licence)
            if progress is not None:
                progress(done, len(held))
    return Exported(place, folders, {})


def client_folder(run: str | Path, client: int | str) -> str:
    """The name of the folder of a client's export."""
    with RunModels(run) as models:
        return _folder_of(models, models.client(client))


def _folder_of(models: RunModels, client: int) -> str:
    name = models.name(client)
    return f"client-{client}" if name is None else folder_name(name)


def folder_name(name: str) -> str:
    """The name of a client or model as that of a folder."""
    return "".join(letter if letter.isalnum() or letter in "-_.=" else "_" for letter in name).strip(".") or "client"


def _written(draft: Path, name: str, found: Deployable, formats: tuple[str, ...], licence: str | None) -> str:
    """Write an export into the draft of several; its name is another one if there is one of that name."""
    while (draft / name).exists():
        name += "_"
    (draft / name).mkdir()
    write_files(draft / name, found, formats, licence)
    return name


def _named(models: RunModels, held: dict[str, Deployable], wanted: str) -> str:
    """The name of a model of the server; of a group or cluster, the last part is enough."""
    found = [name for name in held if wanted in (name, name.rpartition("/")[2])]
    if wanted in held:
        return wanted
    if len(found) != 1:
        names = ", ".join(sorted(held)) or "none: its clients' models are personal, export them with --client"
        raise UserError(f"{models.folder} has no {wanted!r} model on its server (it holds {names})")
    return found[0]
