"""Fit, save, load and resume with an installed package, and fail unless the native kernel computed.

Usage: python tools/kernel_in_use.py [--without]    (--without: fail if it did)
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import mile
from mile import native
from mile.storage import read_manifest

WITHOUT = "--without" in sys.argv[1:]


def main() -> None:
    """Run a small fit in a folder of its own and read in its manifest what computed it."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3))
    y = x[:, 0] + 0.1 * rng.normal(size=60)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = mile.MileRegressor(
            n_chains=2, warmup_steps=60, sampling_steps=30, n_draws=20, random_state=0, run_dir=folder / "a.run"
        )
        model.fit(x, y).save(folder / "a.mile")
        assert np.isfinite(mile.load(folder / "a.mile").predict_interval(x)).all()
        assert np.array_equal(mile.resume(folder / "a.run").predict(x), model.predict(x))
        path = str(read_manifest(folder / "a.run").fingerprint["path"])
    state = native.kernel_state().value
    print(f"{mile.__file__}: native kernel {state}, the run was computed by {path}")
    if path.startswith("native-") == WITHOUT or (state == "in use") == WITHOUT:
        sys.exit(f"expected a run {'without' if WITHOUT else 'by'} the native kernel.")


if __name__ == "__main__":
    main()
