"""The command line on images in an NPZ file."""

import json

import numpy as np
import pytest
from sklearn.datasets import load_digits
from typer.testing import CliRunner

from mile.cli import app

RUNNER = CliRunner()
BUDGET = ["--network=cnn_v1", "--chains=2", "--warmup-steps=60", "--sampling-steps=20", "--draws=10", "--seed=1"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    digits = load_digits()
    images, labels = (15 * digits.images).astype(np.uint8), np.array(list("abcdefghij"))[digits.target]
    np.savez(folder / "images.npz", X=images[:100], y=labels[:100])
    np.savez(folder / "keras.npz", x_train=images[:50], y_train=labels[:50], x_test=images[50:60], y_test=labels[50:60])
    np.savez(folder / "new.npz", X=images[100:110])
    np.savez(folder / "known.npz", images=images[100:130], kind=labels[100:130])
    np.savez(folder / "other.npz", pictures=images[:9])
    np.savez(folder / "short.npz", X=images[:9], y=labels[:8])
    done = RUNNER.invoke(app, ["fit", str(folder / "images.npz"), "--out", str(folder / "run"), "--json", *BUDGET])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["weights"] > 0
    return folder


def run(*arguments):
    done = RUNNER.invoke(app, list(map(str, arguments)))
    return done.exit_code, done.output


def test_new_images_are_predicted(folder):
    code, output = run("predict", folder / "run", folder / "new.npz")
    assert code == 0
    assert len(output.splitlines()) == 11
    assert output.startswith("label,probability,p_a,")


def test_known_images_are_scored_by_an_array_of_any_name(folder):
    code, output = run("evaluate", folder / "run", folder / "known.npz", "--target", "kind", "--json")
    assert code == 0
    assert json.loads(output)["rows"] == 30


def test_test_images_of_a_file_with_both_parts_are_the_ones_scored(folder):
    code, output = run("evaluate", folder / "run", folder / "keras.npz", "--json")
    assert code == 0
    assert json.loads(output)["rows"] == 10


def test_a_report_needs_nothing_but_the_run(folder):
    assert run("report", folder / "run")[0] == 0
    assert "images of 8 x 8" in (folder / "run" / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fit", "images.npz", "--target", "z"], "has no array 'z'; it has 'X', 'y'"),
        (["fit", "other.npz"], "must have images in an array named 'X'"),
        (["fit", "new.npz"], "no array 'y' with one number or label"),
        (["fit", "short.npz"], "must have one entry for each of the 9 images"),
        (["fit", "images.npz", "--drop", "a"], "leaves out columns of a table"),
        (["fit", "images.npz"], "too small for these convolutions"),
        (["evaluate", "run", "new.npz"], "nothing is known of them"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(folder, monkeypatch, arguments, words):
    monkeypatch.chdir(folder)
    code, output = run(*arguments)
    assert code != 0
    assert words in " ".join(output.split())
