"""Commands before a run: new, devices, doctor."""

from pathlib import Path
from typing import Annotated

import typer

from fedtailor.cli.options import DataDir, ExperimentFile, Json, Sets
from fedtailor.cli.settings import settings_from, shared_options

commands = typer.Typer()


@commands.command(epilog="Example: fedtailor devices experiment.toml --set devices.profiles=tiers")
def devices(
    experiment: ExperimentFile = None, sets: Sets = None, data_dir: DataDir = None, as_json: Json = False
) -> None:
    """Show every client's device, and how long an epoch takes on it."""
    settings = settings_from(experiment, shared_options(data_dir=data_dir), sets)
    from fedtailor.runs import Resources, describe_devices
    from fedtailor.views import console
    from fedtailor.views.devices import devices_page

    document = describe_devices(settings, Resources())
    console.show_json(document) if as_json else console.show(devices_page(document))


@commands.command(epilog="Example: fedtailor new experiment.toml")
def new(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")] = Path("experiment.toml"),
) -> None:
    """Write an experiment to start from; never overwrites a file."""
    from fedtailor.views.files import writing
    from fedtailor.views.starter import starter

    with writing(file), file.open("x", encoding="utf-8") as text:
        text.write(starter(str(file)))
    typer.echo(f"written to {file}; start it with: fedtailor run {file}")


@commands.command(epilog="Example: fedtailor doctor --json")
def doctor(data_dir: DataDir = None, as_json: Json = False) -> None:
    """Show what is installed and usable: Python, packages, extras, processor, memory, data sets.

    The exit code is 0 if FedTailor works here, and 1 if something must be put right first.
    """
    from fedtailor.runs.doctor import examine
    from fedtailor.views import console
    from fedtailor.views.doctor import doctor_page

    findings = examine(data_dir)
    works = not any(one.state == "problem" for one in findings)
    if as_json:
        console.show_json({"works": works, "findings": [vars(one) for one in findings]})
    else:
        console.show(doctor_page(findings))
    if not works:
        raise typer.Exit(1)
