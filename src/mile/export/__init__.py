"""Fitted models as files for other programs: ONNX graphs, StableHLO programs, draws for ArviZ."""

from mile.export.base import AbstractExporter, export_fit

__all__ = ["AbstractExporter", "export_fit"]
