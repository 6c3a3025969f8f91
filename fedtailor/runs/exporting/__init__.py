"""Exports: models to use elsewhere, in several formats, with a card, checked and calibrated."""

from .exports import Exported, client_folder, export_client, export_clients, export_global, export_server, folder_name
from .loading import Model, OnnxModel, Predictor, load_model, load_onnx
from .predicting import Predictions, predict
from .writing import ClientData, Deployable, write_model

__all__ = [
    "ClientData",
    "Deployable",
    "Exported",
    "Model",
    "OnnxModel",
    "Predictions",
    "Predictor",
    "client_folder",
    "export_client",
    "export_clients",
    "export_global",
    "export_server",
    "folder_name",
    "load_model",
    "load_onnx",
    "predict",
    "write_model",
]
