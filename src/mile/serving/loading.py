"""`mile.load`: a saved model as it was, or, without JAX, what predicts by the kernel until more is asked."""

import sys
from pathlib import Path
from typing import Any

from mile.serving.model import FittedModel


# Any: which kind of model it is, only the file says, and callers use the methods of the one that they saved.
def load(path: str | Path, *, network: object = None) -> Any:
    """Return a saved model, or what a run has so far: its draws, or before these the deep ensemble, with a warning.

    Nothing in the file is executed, and nothing is imported by a name that it holds. Draws that take much memory stay
    on disk and are read as predictions need them. In a process that has not imported JAX, a regression of an array by a
    perceptron predicts by the native kernel alone; the first use of anything but `predict`, `predict_interval` and
    `predict_quantiles` loads the rest.

    Parameters
    ----------
    path
        A file written by `save`, or a run directory, also one that another process is writing to.
    network
        Your own network again, if the model was fitted with one: files keep the shapes of its arrays, not its code.

    Returns
    -------
    MileRegressor, MileClassifier or Fit
        What was saved.

    Raises
    ------
    CorruptFileError
        If the file was cut short or altered.
    UntrustedFileError
        If it is not a file of ours.
    ValueError
        If a run has neither draws nor a trained ensemble yet, or `network` is missing or not the one of the file.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> import mile, tempfile, pathlib
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = mile.MileRegressor(preset="quick", n_chains=2, random_state=0).fit(X, y)
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.mile"
    >>> model.save(path)
    >>> bool((mile.load(path).predict(X) == model.predict(X)).all())
    True
    """
    path = Path(path)
    # Where JAX is loaded there is nothing to save, and the whole file is checked at once.
    if network is None and "jax" not in sys.modules and path.is_file():
        found = FittedModel.read(path)
        if found is not None:
            return found
    from mile.estimators.loading import load as load_whole

    return load_whole(path, network=network)
