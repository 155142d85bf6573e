"""What the suite has to show, computed from the rows of summary.csv.

Usage: python experiments/suite/claims.py [SUMMARY]
"""

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from summaries import Summary

DEFAULT = "mile-default"
RANKED = (DEFAULT, "de", "ridge", "gp", "ngboost", "catboost", "xgboost", "quantile-forest")
SCORES = {"lppd": ("LPPD", 1.0), "crps": ("CRPS", -1.0)}  # title, and which way is better
ALLOWED = 0.02  # in LPPD, below an ensemble
MOST_STD = 20.0  # standard deviations of the target
ABOVE_CONSTANT = 1.02
COVERED, COVERED_CONFORMAL, MANY_TEST_ROWS = (0.88, 0.92), (0.895, 0.915), 1_000
AGREEING = 0.9  # share of the tables where out-of-fold scores must agree with test scores
_FARTHER = 10.0  # times as far out are the rows of `std_far` as those of `std_out`

Rows = Sequence[Mapping[str, str]]


class Claim(NamedTuple):
    """One line: what is wanted, what was found, and whether it holds; None: there are no rows to tell."""

    what: str
    wanted: str
    found: str
    holds: bool | None


class Rank(NamedTuple):
    """How a method stands among those that are ranked."""

    method: str
    mean: float
    first: int  # on how many tables
    missing: int  # tables where it has no score


class Difference(NamedTuple):
    """By how much the default is above another method, over all test rows of all splits."""

    dataset: str
    mean: float
    error: float


def claims(rows: Rows) -> list[Claim]:
    """Return all claims."""
    own = [row for row in rows if row["method"] == DEFAULT and row["lppd"]]
    compared = [_not_below(own, method, name) for method, name in (("ensemble", "its ensemble"), ("de", "the fair DE"))]
    ranked = [_ranked(rows, column) for column in SCORES]
    others = [_spread(own), _growth(own), _constant(own), _out_of_fold(own)]
    return [*compared, *ranked, *others, _coverage(own), _conformal(own)]


def ranks(rows: Rows, column: str) -> tuple[list[Rank], int]:
    """Return each method's rank by a score, and on how many tables; 1 is best, and no score is the last place.

    Of the splits of tables that the default has, or of all if it has none. Methods without any row are left out.
    """
    sign = SCORES[column][1]
    values: dict[tuple[str, str], list[float]] = {}
    scored = [row for row in rows if row["method"] in RANKED and row[column]]
    judged = [row for row in scored if row["method"] == DEFAULT] or scored
    own = {(row["dataset"], row["split"]) for row in judged}
    for row in scored:
        if (row["dataset"], row["split"]) in own:
            values.setdefault((row["dataset"], row["method"]), []).append(sign * float(row[column]))
    tables = sorted({dataset for dataset, _ in own})
    methods = [name for name in RANKED if any((table, name) in values for table in tables)]
    splits = {table: sum(dataset == table for dataset, _ in own) for table in tables}
    places: dict[str, list[float]] = {name: [] for name in methods}
    for table in tables:
        found = [values.get((table, name), []) for name in methods]
        scores = [np.mean(scores) if len(scores) == splits[table] else -math.inf for scores in found]
        for name, score in zip(methods, scores, strict=True):
            better, level = sum(other > score for other in scores), sum(other == score for other in scores)
            places[name].append(1 + better + (level - 1) / 2 if score > -math.inf else len(methods))
    missing = {name: sum(len(values.get((table, name), ())) < splits[table] for table in tables) for name in methods}
    table_of_ranks = [
        Rank(name, float(np.mean(places[name])), sum(place == 1.0 for place in places[name]), missing[name])
        for name in methods
    ]
    return sorted(table_of_ranks, key=lambda rank: rank.mean), len(tables)


def differences(own: Rows, method: str) -> list[Difference]:
    """Return the paired difference to another method on each table, pooled over the test rows of all splits."""
    column = f"minus_{method}"
    groups: dict[str, list[tuple[float, float, int]]] = {}
    for row in own:
        if row[column]:
            part = (float(row[column]), float(row[f"{column}_se"]), int(row["rows_test"]))
            groups.setdefault(row["dataset"], []).append(part)
    return [Difference(dataset, *_pooled(parts)) for dataset, parts in groups.items()]


def _pooled(parts: Sequence[tuple[float, float, int]]) -> tuple[float, float]:
    """Return mean and standard error of one sample that was given in parts: their means, standard errors and sizes."""
    means, errors, sizes = (np.array(column, float) for column in zip(*parts, strict=True))
    total = sizes.sum()
    mean = float(sizes @ means / total)
    squares = (sizes - 1) @ (sizes * errors**2) + sizes @ (means - mean) ** 2
    return mean, float(np.sqrt(squares / (total - 1) / total))


def _not_below(own: Rows, method: str, name: str) -> Claim:
    found = differences(own, method)
    below = [item for item in found if item.mean < -max(ALLOWED, 2.0 * item.error)]
    named = ", ".join(f"{item.dataset} ({item.mean:.3f} ± {item.error:.3f})" for item in below)
    said = f"{len(below)} of {len(found)}" + (f": {named}" if below else "")
    what = f"tables where LPPD is below that of {name} by more than max({ALLOWED}, 2 s.e.)"
    return Claim(what, "0", said, not below if found else None)


def _ranked(rows: Rows, column: str) -> Claim:
    found, n_tables = ranks(rows, column)
    what, wanted = f"mean rank in {SCORES[column][0]}", "first or second, and first on half of the tables"
    names = [rank.method for rank in found]
    if DEFAULT not in names or len(names) == 1:
        return Claim(what, wanted, "", None)
    own = found[names.index(DEFAULT)]
    place = names.index(DEFAULT) + 1
    said = f"place {place} of {len(found)} (mean rank {own.mean:.2f}), first on {own.first} of {n_tables}"
    return Claim(what, wanted, said, place <= 2 and 2 * own.first >= n_tables)


def _spread(own: Rows) -> Claim:
    columns = ("std_train", "std_test", "std_out")
    found = {(row["dataset"], name): float(row[name]) for row in own for name in columns if row[name]}
    what = "largest predicted standard deviation: training, test, rows moved 5 sd out"
    if not found:
        return Claim(what, f"at most {MOST_STD:g}", "", None)
    place, most = max(found.items(), key=lambda item: item[1])
    return Claim(what, f"at most {MOST_STD:g}", f"{most:,.2f} ({place[0]}, {place[1]})", most <= MOST_STD)


def _growth(own: Rows) -> Claim:
    known = [row for row in own if row["std_far"]]
    over = sorted({row["dataset"] for row in known if float(row["std_far"]) > _FARTHER * float(row["std_out"])})
    what = "tables where rows 50 sd out have more than ten times the deviation of rows 5 sd out"
    return Claim(what, "0", _listed(over, known), not over if known else None)


def _constant(own: Rows) -> Claim:
    known = [row for row in own if row["crps"]]
    tables = sorted({row["dataset"] for row in known})

    def mean(table: str, column: str) -> float:
        return float(np.mean([float(row[column]) for row in known if row["dataset"] == table]))

    over = [table for table in tables if mean(table, "crps") > ABOVE_CONSTANT * mean(table, "constant")]
    what = f"tables with a CRPS above {ABOVE_CONSTANT} times that of the training targets' own distribution"
    return Claim(what, "0", _listed(over, known), not over if known else None)


def _out_of_fold(own: Rows) -> Claim:
    known = [row for row in own if row["oof_lppd"]]
    what = "fits whose out-of-fold LPPD is within 2 s.e. of the test LPPD"
    if not known:
        return Claim(what, f"{AGREEING:.0%}", "", None)
    distances = [
        abs(float(row["oof_lppd"]) - float(row["lppd"])) / math.hypot(float(row["oof_lppd_se"]), float(row["lppd_se"]))
        for row in known
    ]
    share = float(np.mean(np.array(distances) <= 2.0))
    return Claim(what, f"{AGREEING:.0%}", f"{share:.0%} of {len(known)}", share >= AGREEING)


def _coverage(own: Rows) -> Claim:
    return _covered(own, "coverage", COVERED, "coverage of 90 % intervals, all test rows together")


def _conformal(own: Rows) -> Claim:
    many = [row for row in own if int(row["rows_test"]) >= MANY_TEST_ROWS]
    what = f"the same, conformal, tables with {MANY_TEST_ROWS:,} test rows or more"
    return _covered(many, "coverage_conformal", COVERED_CONFORMAL, what)


def _covered(own: Rows, column: str, bounds: tuple[float, float], what: str) -> Claim:
    known = [row for row in own if row[column]]
    wanted = f"{100 * bounds[0]:g} to {100 * bounds[1]:g} %"
    if not known:
        return Claim(what, wanted, "", None)
    values, sizes = (np.array([float(row[name]) for row in known]) for name in (column, "rows_test"))
    pooled, single = float(values @ sizes / sizes.sum()), float(values.mean())
    said = f"{pooled:.1%} (mean of fits {single:.1%}, {int(sizes.sum()):,} rows)"
    return Claim(what, wanted, said, bounds[0] <= pooled <= bounds[1])


def _listed(tables: Sequence[str], known: Rows) -> str:
    total = len({row["dataset"] for row in known})
    return f"{len(tables)} of {total}" + (f": {', '.join(tables)}" if tables else "")


def markdown(rows: Rows) -> str:
    """Return the claims, and the ranks of all methods, as tables of a page."""
    words = {True: "yes", False: "**no**", None: "no rows"}
    lines = ["| claim | wanted | found | holds |", "|---|---|---|---|"]
    lines += [f"| {claim.what} | {claim.wanted} | {claim.found} | {words[claim.holds]} |" for claim in claims(rows)]
    for column, (title, _) in SCORES.items():
        found, n_tables = ranks(rows, column)
        if not found:
            continue
        lines += ["", f"| method | mean rank in {title} | first, of {n_tables} tables | tables without a score |"]
        lines += ["|---|---|---|---|"]
        lines += [f"| {rank.method} | {rank.mean:.2f} | {rank.first} | {rank.missing} |" for rank in found]
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown(Summary(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("summary.csv")).rows))
