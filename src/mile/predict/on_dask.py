"""Predictions of many rows on a Dask cluster, block by block; each block is checked before it is used."""

import socket
from collections.abc import Callable, Sized
from typing import NamedTuple, Protocol, TypeVar, cast, runtime_checkable

import numpy as np

from mile._checks import check_count
from mile._errors import ClusterError, warn
from mile.execution.dask_client import Client
from mile.execution.result_checks import check_rows

_BLOCK_ROWS = 50_000

Sliced = TypeVar("Sliced", covariant=True)


@runtime_checkable
class Sliceable(Protocol[Sliced]):
    """What gives some of its rows for a slice: an array, or the `iloc` of a data frame."""

    def __getitem__(self, rows: slice, /) -> Sliced:
        """Return some rows."""
        ...


@runtime_checkable
class Frame(Protocol):
    """A data frame."""

    @property
    def iloc(self) -> Sliceable["Frame"]:
        """Its rows by number."""
        ...

    def __len__(self) -> int: ...


@runtime_checkable
class DaskArray(Protocol):
    """A `dask.array.Array`."""

    @property
    def shape(self) -> tuple[int, ...]:
        """As of any array."""
        ...

    @property
    def ndim(self) -> int:
        """As of any array."""
        ...

    @property
    def dtype(self) -> np.dtype:
        """As of any array."""
        ...

    @property
    def chunks(self) -> tuple[tuple[int, ...], ...]:
        """Sizes of its blocks along each axis."""
        ...

    def rechunk(self, chunks: dict[int, int]) -> "DaskArray":
        """Return the array in other blocks."""
        ...

    def map_blocks(self, function: Callable[..., np.ndarray], **options: object) -> "DaskArray":
        """Return the array of a function's results for all blocks."""
        ...


def map_rows(
    model: object, X: object, method: str = "predict", *, client: Client | None = None, block_rows: int = _BLOCK_ROWS
) -> np.ndarray | DaskArray:
    """Predict many rows on the workers of a Dask cluster; the numbers are those of `model.predict(X)` here.

    Shape, type and finiteness of the results are checked, and a block that cannot be right is computed again on
    another worker. Blocks of a dask array stay on the cluster and are not checked.

    Parameters
    ----------
    model
        A fitted estimator. It is sent to each worker once; draws on disk must be where the workers can read them.
    X
        A table, an array of images, or a dask array, whose blocks stay where they are.
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
    ClusterError
        If what comes back for a block cannot be right, from two workers.

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
        return _lazily(model, cast(DaskArray, X), method)
    if client is None:
        try:
            client = cast(Client, distributed.default_client())
        except ValueError:
            raise ValueError("map_rows needs a distributed.Client: give client=, or make one before.") from None
    cluster = client
    table = cast(Frame, X) if hasattr(X, "iloc") else np.asarray(X)
    rows = cast(Sliceable[Sized], table if isinstance(table, np.ndarray) else table.iloc)
    blocks = [rows[start : start + block_rows] for start in range(0, len(table), block_rows)]
    one = _call(rows[:1], model=model, method=method)
    shared = cluster.scatter(model, broadcast=True, hash=False)
    answers = cluster.gather(cluster.map(_answer, blocks, model=shared, method=method, pure=False))

    def ask_again(number: int) -> _Answer:
        workers = cluster.scheduler_info(n_workers=-1).get("workers", {})
        others = [address for address in workers if address != answers[number].address]
        places = {"workers": others, "allow_other_workers": True} if others else {}
        return cluster.submit(_answer, blocks[number], model=shared, method=method, pure=False, **places).result()

    return np.concatenate(
        [
            _checked(answer, one, len(blocks[number]), lambda number=number: ask_again(number))
            for number, answer in enumerate(answers)
        ]
    )


class _Answer(NamedTuple):
    """Predictions of a block, and who made them."""

    values: np.ndarray
    address: str
    host: str


def _checked(answer: _Answer, one: np.ndarray, n_rows: int, ask_again: Callable[[], _Answer]) -> np.ndarray:
    """Return a block's predictions if their form is that of `one` row; else ask another worker."""
    expected = np.broadcast_to(one[:1], (n_rows, *one.shape[1:]))
    flaw = check_rows(answer.values, expected=expected)
    if flaw is None:
        return answer.values
    second = ask_again()
    second_flaw = check_rows(second.values, expected=expected)
    if second_flaw is None:
        warn(
            f"{_who(answer)} returned a wrong result for {n_rows:,} rows: {flaw.sentence}. They were predicted again, "
            "and the right result is used. Check that host."
        )
        return second.values
    if not flaw.is_malformed and not second_flaw.is_malformed and _same_bits(answer.values, second.values):
        return second.values  # two workers agree: this is what the model predicts
    raise ClusterError(
        f"{n_rows:,} rows could not be predicted. {_who(answer)} returned {flaw.sentence}; {_who(second)} returned "
        f"{second_flaw.sentence}. Predict on other hosts, or here with model.predict."
    )


def _who(answer: _Answer) -> str:
    return f"The worker {answer.address} on host {answer.host}"


def _same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    return np.ascontiguousarray(one).tobytes() == np.ascontiguousarray(other).tobytes()


def _lazily(model: object, X: DaskArray, method: str) -> DaskArray:
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


def _answer(rows: object, *, model: object, method: str) -> _Answer:
    from distributed import get_worker

    return _Answer(_call(rows, model=model, method=method), get_worker().address, socket.gethostname())


def _call(rows: object, *, model: object, method: str) -> np.ndarray:
    return np.asarray(getattr(model, method)(rows))
