"""How long a step of a decoder takes on a system, at full size and without weights: on ours, and on GPUs (`gpu`)."""

from __future__ import annotations

from headrace.tools.predict.predicting import MemoryPlan, Prediction, forget, memory_plan, predict, predict_program
from headrace.tools.predict.system import System, with_changes

__all__ = ["MemoryPlan", "Prediction", "System", "forget", "memory_plan", "predict", "predict_program", "with_changes"]
