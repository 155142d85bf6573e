"""The data sets of the paper, from a folder of yours or, online, from where they are published."""

import difflib
import os
from pathlib import Path
from typing import Literal, overload

from mile._compilation import _user_cache_folder
from mile.datasets._catalog import SETS
from mile.datasets._kinds import Images, Table, Texts

__all__ = ["NAMES", "Images", "Table", "Texts", "load"]

NAMES = tuple(SETS)


@overload
def load(
    name: Literal["mnist", "fashion_mnist"], data_dir: str | os.PathLike[str] | None = None, download: bool = True
) -> Images: ...
@overload
def load(name: Literal["imdb"], data_dir: str | os.PathLike[str] | None = None, download: bool = True) -> Texts: ...
@overload
def load(name: str, data_dir: str | os.PathLike[str] | None = None, download: bool = True) -> Table: ...
def load(name: str, data_dir: str | os.PathLike[str] | None = None, download: bool = True) -> Table | Images | Texts:
    """Return a data set of the paper, as published: raw numbers, all rows, in the order of the source.

    The file is looked for in `data_dir`, then in the user's cache folder (on Linux `~/.cache/mile-bnn/datasets`), and
    is else downloaded, checked and kept in that cache. The reviews of `imdb` are sorted by label: shuffle them before
    taking a part.

    Parameters
    ----------
    name
        One of `mile.datasets.NAMES`.
    data_dir
        A folder with `NAME.csv.gz` (a header, the target in the last column; for `imdb` the columns label, text and
        split) or `NAME.npz` (arrays x_train, y_train, x_test and y_test). By default the folder that the variable
        `MILE_DATA` names, if it is set.
    download
        Whether a missing file may be downloaded.

    Returns
    -------
    Table, Images or Texts
        Named tuples: `Table(x, y, features, target, task)`, `Images(x_train, y_train, x_test, y_test)`,
        `Texts(texts_train, labels_train, texts_test, labels_test)`.

    Raises
    ------
    FileNotFoundError
        If the file is nowhere and cannot be downloaded; the message names the places.
    ValueError
        If there is no such data set, or the file has other rows or columns than it should.
    CorruptFileError
        If what was downloaded is not the data set.

    Examples
    --------
    >>> import mile
    >>> table = mile.datasets.load("airfoil")  # doctest: +SKIP
    >>> table.x.shape, table.target, table.task  # doctest: +SKIP
    ((1503, 5), 'scaled_sound_pressure_level', 'regression')
    """
    if name not in SETS:
        close = difflib.get_close_matches(str(name), NAMES, 1)
        question = f"; did you mean {close[0]!r}?" if close else "."
        raise ValueError(f"There is no data set {name!r}{question} There are {', '.join(NAMES)}.")
    data_set = SETS[name]
    file = name + data_set.suffix
    folder = _given_folder(data_dir)
    if folder is not None and (folder / file).is_file():
        return data_set.read(folder / file)
    kept = _cache_folder() / file
    if not kept.is_file():
        if not download:
            raise _missing(file, folder, "and downloading was not allowed")
        try:
            data_set.make(kept)
        except ConnectionError as error:
            raise _missing(file, folder, f"and it could not be downloaded ({error})") from error
    return data_set.read(kept)


def _given_folder(data_dir: str | os.PathLike[str] | None) -> Path | None:
    """Return the folder that the user names, which must be there: a misspelled one should not lead to a download."""
    given, source = (data_dir, "data_dir") if data_dir is not None else (os.environ.get("MILE_DATA"), "MILE_DATA")
    if not given:
        return None
    folder = Path(given).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(f"{source} should name a folder with data sets; there is no folder {folder}.")
    return folder


def _cache_folder() -> Path:
    return _user_cache_folder() / "mile-bnn" / "datasets"


def _missing(file: str, folder: Path | None, reason: str) -> FileNotFoundError:
    places = [str(place) for place in (folder, _cache_folder()) if place is not None]
    return FileNotFoundError(
        f"There is no {file} in {' or '.join(places)}, {reason}. Put {file} into a folder and name the folder with "
        "data_dir (--data-dir for scripts) or the variable MILE_DATA, or call again with a connection to the Internet. "
        "docs/datasets.md says what the file must look like."
    )
