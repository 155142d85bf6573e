"""Predictions as a frame of the library that the rows came in."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from mile.features.accepted import InputLike

if TYPE_CHECKING:
    from narwhals.typing import IntoDataFrame


def frame_like(X: InputLike, columns: Mapping[str, np.ndarray]) -> "IntoDataFrame":
    """Return columns as a frame of X's library, with X's index where there is one; for arrays a frame of pandas.

    Raises
    ------
    ImportError
        If X is of no library of frames, and pandas is not installed.
    """
    import narwhals.stable.v2 as nw

    rows = nw.from_native(X, pass_through=True, allow_series=True)
    if isinstance(rows, nw.DataFrame | nw.Series | nw.LazyFrame):
        library, index = rows.implementation, None if isinstance(rows, nw.LazyFrame) else nw.maybe_get_index(rows)
    else:
        library, index = nw.Implementation.PANDAS, None
    if not library.is_pandas_like():
        return nw.from_dict(columns, backend=library).to_native()
    try:
        namespace = library.to_native_namespace()
    except ImportError:
        raise ImportError(
            "a frame for such X needs pandas: pip install 'mile-bnn[tables]', or give a frame of another library."
        ) from None
    return namespace.DataFrame(dict(columns), index=index)
