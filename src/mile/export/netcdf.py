"""netCDF: draws and sampler statistics in ArviZ's layout."""

from dataclasses import dataclass
from pathlib import Path

from mile import _registry
from mile.export.base import AbstractExporter, Exported


@_registry.exporter("nc")
@dataclass(frozen=True, kw_only=True)
class NetCdf(AbstractExporter):
    """Draws and sampler statistics of the good chains, which ArviZ and xarray read; needs the `arviz` extra."""

    def write(self, model: Exported, path: Path) -> None:
        """Write the draws."""
        model.fitted.to_arviz().to_netcdf(path)
