"""Predicted times from program and machine: to sort candidates before any is measured."""

from explorer.cost.figures import FIGURES, Figures, NoPrediction
from explorer.cost.predict import Prediction, predict

__all__ = ["FIGURES", "Figures", "NoPrediction", "Prediction", "predict"]
