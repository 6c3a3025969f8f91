"""Programs of an export, and the check that they compute what the run's model computes.

A program takes raw samples of any number: pre-processing and calibration are inside. ``model.pt2`` needs torch alone,
``model.onnx`` onnxruntime alone.
"""

import io
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram

from fedtailor.errors import UserError, one_line, unknown
from fedtailor.learning.program import Program

FILES = {"safetensors": "model.safetensors", "torch": "model.pt2", "onnx": "model.onnx"}
NEEDS = ("onnx", "onnxscript", "onnxruntime")  # the packages of the extra
TOLERANCE = 1e-4  # largest difference of an output, relative to 1 plus the largest output
INPUT, OUTPUTS = "samples", ("outputs", "probabilities")

Compute = Callable[[np.ndarray], tuple[np.ndarray, ...]]


def chosen_formats(formats: Iterable[str]) -> tuple[str, ...]:
    """The formats, each once; raises a `UserError` if one is unknown or needs an extra that is not installed."""
    chosen = tuple(dict.fromkeys([formats] if isinstance(formats, str) else formats))
    for name in chosen:
        if name not in FILES:
            raise unknown("format", name, FILES)
    if not chosen:
        raise UserError(f"name at least one format: {', '.join(FILES)}")
    if "onnx" in chosen:
        needs_onnx(NEEDS)
    return chosen


def needs_onnx(packages: Sequence[str]) -> None:
    """Raise a `UserError` if one of these packages of the extra ``export`` is missing."""
    for package in packages:
        if find_spec(package) is None:
            raise UserError(f"ONNX needs the Python package {package}: pip install 'fedtailor[export]'")


def traced(program: Program, example: np.ndarray, network: str) -> ExportedProgram:
    """The operations of a program for any number of samples; ``network`` names it in errors."""
    try:
        with _quiet(), torch.no_grad():
            batch = torch.export.Dim("batch", min=1)
            given = (torch.from_numpy(example),)
            return torch.export.export(program, given, dynamic_shapes=({0: batch},), strict=False)
    except Exception as error:  # the network may be the user's, and raise anything
        raise _impossible(network, "torch", error) from None


def torch_file(program: ExportedProgram) -> bytes:
    """A traced program as a file for ``torch.export.load``."""
    file = io.BytesIO()
    with _quiet():
        torch.export.save(program, file)
    return file.getvalue()


def onnx_file(program: ExportedProgram, network: str) -> bytes:
    """A traced program as an ONNX file; ``network`` names it in errors."""
    names = list(OUTPUTS[: len(program.graph_signature.user_outputs)])
    try:
        with _quiet():
            made = torch.onnx.export(
                program, (), None, input_names=[INPUT], output_names=names, dynamo=True, verbose=False
            )
            assert made is not None
            proto = made.model_proto
    except Exception as error:  # whatever an exporter raises
        raise _impossible(network, "ONNX", error) from None
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    return bytes(proto.SerializeToString())


def read_torch(file: Path) -> Compute:
    """What a torch program of our own computes; never call it for a file of unknown origin, which is unpickled."""
    with _quiet():
        module = torch.export.load(file).module()

    def compute(x: np.ndarray) -> tuple[np.ndarray, ...]:
        with torch.inference_mode():
            return tuple(output.numpy() for output in module(torch.from_numpy(x)))

    return compute


class OnnxProgram:
    """An ONNX program; it may come from a stranger. ``where`` names it in errors."""

    def __init__(self, content: bytes, where: str) -> None:
        needs_onnx(("onnx", "onnxruntime"))
        import onnxruntime

        self.where = where
        _refuse_other_files(content, where)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        try:
            self._session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
            self._input = self._session.get_inputs()[0].name
        except Exception as error:  # a file of unknown origin may raise anything
            raise UserError(
                f"{where} is damaged or no ONNX program ({_short(error)}): export the model again"
            ) from None

    def __call__(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        try:
            return tuple(self._session.run(None, {self._input: x}))
        except Exception as error:  # onnxruntime has many kinds of errors, none of them public
            raise UserError(f"{self.where} cannot compute samples of shape {x.shape} ({_short(error)})") from None


def difference(expected: Compute, given: Compute, x: np.ndarray, what: str) -> dict[str, Any]:
    """Compare a program with the run's model on these samples, one of them alone and all together.

    Raises
    ------
    UserError
        If an output differs by more than rounding explains.
    """
    batches = [(expected(part), given(part)) for part in (x[:1], x)]
    largest, different = 0.0, 0
    for ours, theirs in batches:
        if len(ours) != len(theirs) or any(a.shape != b.shape for a, b in zip(ours, theirs, strict=True)):
            raise UserError(f"{what} gives outputs of another shape than the model: nothing was written")
        apart = max(float(np.abs(a - b).max(initial=0.0)) for a, b in zip(ours, theirs, strict=True))
        if not apart <= TOLERANCE * (1 + float(np.abs(ours[0]).max(initial=0.0))):
            raise UserError(f"{what} differs from the model by {apart:.3g} in an output: nothing was written")
        largest = max(largest, apart)
        different = int((ours[0].argmax(1) != theirs[0].argmax(1)).sum()) if len(ours) > 1 else 0
    found: dict[str, Any] = {"samples": len(x), "largest_difference": largest}
    return found | ({"different_predictions": different} if len(batches[0][0]) > 1 else {})


def runtime(format: str) -> str:
    """What computes a format, with its version."""
    if format == "torch":
        return f"torch {torch.__version__}"
    import onnxruntime

    return f"onnxruntime {onnxruntime.__version__}"


def _impossible(network: str, format: str, error: Exception) -> UserError:
    reason = _short(error)
    return UserError(f"model {network!r} cannot become a {format} program ({reason}): export it as safetensors")


def _short(error: Exception) -> str:
    return one_line(str(error).strip().partition("\n")[0] or type(error).__name__)


def _refuse_other_files(content: bytes, where: str) -> None:
    """Refuse a program whose tensors are in other files: it would read files of this machine."""
    import onnx

    try:
        proto = onnx.load_model_from_string(content)
    except Exception as error:  # a file of unknown origin may raise anything
        raise UserError(f"{where} is damaged or no ONNX program ({_short(error)}): export the model again") from None
    if any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in _tensors(proto)):
        raise UserError(f"{where} wants to read its tensors from other files: it is not loaded")


def _tensors(message: Any) -> Iterator[Any]:
    """Every tensor in an ONNX message, in whatever place."""
    if message.DESCRIPTOR.name == "TensorProto":
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for one in value if hasattr(value, "add") else [value]:
                yield from _tensors(one)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporters' warnings, which a user can do nothing about."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
