"""The commands export and predict."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from fedtailor.cli.options import Formats, Json, Licence, Quiet, RunFolder
from fedtailor.cli.settings import split_list

commands = typer.Typer()


@commands.command(
    epilog="Example: fedtailor export runs/experiment --client 3 --out client-3 --format safetensors,torch"
)
def export(
    run: RunFolder,
    client: Annotated[str | None, typer.Option(help="Export the model of this client: its name or number.")] = None,
    everyone: Annotated[bool, typer.Option("--all", help="Export the models of all clients.")] = False,
    of_server: Annotated[bool, typer.Option("--global", help="Export the server's global model.")] = False,
    group: Annotated[
        str | None,
        typer.Option(
            help="Export a model of a group, cluster or size, such as 3 or large; 'all': all of the server's."
        ),
    ] = None,
    formats: Formats = "safetensors",
    licence: Licence = None,
    out: Annotated[Path | None, typer.Option(help="The folder to write; default: in the run's folder.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a trained model with its card: safetensors weights, or a program that needs torch or onnxruntime only.

    A program does the pre-processing itself. Probabilities are calibrated on the client's validation samples.
    """
    if [client is not None, everyone, of_server, group is not None].count(True) != 1:
        raise typer.BadParameter("name one of --client NAME, --all, --global, --group NAME.", param_hint="export")
    from fedtailor import runs
    from fedtailor.views.exports import counting, show_export

    chosen = split_list(formats) or []
    done: Path | runs.Exported
    with counting("exporting", quiet) as progress:
        if everyone:
            done = runs.export_clients(
                run, out or run / "exports" / "clients", formats=chosen, licence=licence, progress=progress
            )
        elif group == "all":
            done = runs.export_server(
                run, out or run / "exports" / "server", formats=chosen, licence=licence, progress=progress
            )
        elif client is not None:
            place = out or run / "exports" / runs.client_folder(run, client)
            done = runs.export_client(run, client, place, formats=chosen, licence=licence)
        else:
            model = group or "global"
            place = out or run / "exports" / runs.folder_name(model)
            done = runs.export_global(run, place, model, formats=chosen, licence=licence)
    show_export(done, as_json)


@commands.command(epilog="Example: fedtailor predict client-3 clients/client-0.npz --out predictions.csv")
def predict(
    export: Annotated[Path, typer.Argument(metavar="EXPORT", help="The folder of an export.")],
    data: Annotated[Path, typer.Argument(metavar="DATA", help="A .csv or .npz file, an image, or a folder of images.")],
    out: Annotated[Path | None, typer.Option(help="The CSV file to write; default: print it.")] = None,
    format: Annotated[
        Literal["safetensors", "onnx"] | None,
        typer.Option(help="What computes; default: safetensors, if the export has it."),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Predict with an exported model: classes with their probabilities, or numbers. No code of the export runs.

    A CSV file has the columns of the training data; others are left out, labels too.
    """
    from fedtailor import runs
    from fedtailor.views.exports import check_new, counting, show_predictions

    check_new(out)
    with counting("predicting", quiet) as progress:
        done = runs.predict(export, data, format=format, progress=progress)
    show_predictions(done, out, as_json)
