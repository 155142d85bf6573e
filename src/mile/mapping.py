"""Predictions of many rows on a Dask cluster, block by block."""

from typing import Any

import numpy as np

from mile._checks import check_count

_BLOCK_ROWS = 50_000


def map_rows(model: Any, X: Any, method: str = "predict", *, client: Any = None, block_rows: int = _BLOCK_ROWS) -> Any:
    """Predict many rows on the workers of a Dask cluster; the numbers are those of `model.predict(X)` here.

    Parameters
    ----------
    model
        A fitted estimator. It is sent to each worker once; draws that stay on disk must be on one that they can read.
    X
        A table, an array of images, or a dask array whose blocks are read where they are.
    method
        Name of the method to call with each block, such as "predict" or "predict_proba".
    client
        A `distributed.Client`; None takes that of this process. A dask array finds its own.
    block_rows
        Rows of one task; a dask array has its own blocks.

    Returns
    -------
    numpy.ndarray or dask.array.Array
        One entry per row. Of a dask array nothing is computed yet.

    Raises
    ------
    ValueError
        If the model has no such method, or there is no client.
    ImportError
        If dask is not installed.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from distributed import Client
    >>> import mile
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = mile.MileRegressor(preset="quick", n_chains=2, random_state=0).fit(X, y)
    >>> with Client(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as client:
    ...     predicted = mile.map_rows(model, X, client=client)
    >>> bool((predicted == model.predict(X)).all())
    True
    """
    check_count("block_rows", block_rows)
    if not callable(getattr(model, method, None)):
        raise ValueError(f"method must be one of the model's, such as 'predict'; got {method!r}.")
    try:
        import distributed
    except ImportError as error:
        raise ImportError("Predicting on a Dask cluster needs distributed: pip install 'mile-bnn[dask]'.") from error
    if hasattr(X, "dask") and hasattr(X, "map_blocks"):
        return _lazily(model, X, method)
    if client is None:
        try:
            client = distributed.default_client()
        except ValueError:
            raise ValueError("map_rows needs a distributed.Client: give client=, or make one before.") from None
    rows = X if hasattr(X, "iloc") else np.asarray(X)
    blocks = [_rows(rows, start, start + block_rows) for start in range(0, len(rows), block_rows)]
    shared = client.scatter(model, broadcast=True, hash=False)
    futures = client.map(_call, blocks, model=shared, method=method, pure=False)
    return np.concatenate(client.gather(futures))


def _lazily(model: Any, X: Any, method: str) -> Any:
    """Return the predictions of a dask array as another one."""
    from dask.delayed import delayed

    whole_rows = X.rechunk({axis: -1 for axis in range(1, X.ndim)})
    one = np.asarray(getattr(model, method)(np.zeros((1, *X.shape[1:]), X.dtype)))
    return whole_rows.map_blocks(
        _call,
        model=delayed(model, pure=False, traverse=False),
        method=method,
        dtype=one.dtype,
        meta=one[:0],
        drop_axis=list(range(1, X.ndim)),
        new_axis=list(range(1, one.ndim)),
        chunks=(whole_rows.chunks[0], *((size,) for size in one.shape[1:])),
    )


def _rows(table: Any, start: int, stop: int) -> Any:
    return table.iloc[start:stop] if hasattr(table, "iloc") else table[start:stop]


def _call(rows: Any, *, model: Any, method: str) -> np.ndarray:
    return np.asarray(getattr(model, method)(rows))
