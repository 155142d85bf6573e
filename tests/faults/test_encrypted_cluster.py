"""A Dask cluster whose traffic is encrypted: chains run there, and nobody without a certificate gets in."""

import shutil
import subprocess

import numpy as np
import pytest
import runs
from distributed import LocalCluster
from distributed.security import Security
from typer.testing import CliRunner

import mile
from mile import ClusterError
from mile.cli import app
from mile.execution import DaskBackend, tls_security

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made with openssl")
CERT, KEY = "cert.pem", "key.pem"


def made_certificate(folder):
    """Make a certificate that has signed itself, so it is its own authority."""
    folder.mkdir()
    names = ["-keyout", str(folder / KEY), "-out", str(folder / CERT), "-subj", "/CN=127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    return made_certificate(tmp_path_factory.mktemp("tls") / "ours")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    return made_certificate(tmp_path_factory.mktemp("tls") / "theirs")


def security_of(folder):
    return tls_security(folder / CERT, folder / CERT, folder / KEY)


@pytest.fixture(scope="module")
def address(ours):
    files = {"tls_ca_file": str(ours / CERT)}
    for role in ("scheduler", "worker", "client"):
        files |= {f"tls_{role}_cert": str(ours / CERT), f"tls_{role}_key": str(ours / KEY)}
    security = Security(require_encryption=True, **files)
    with LocalCluster(
        n_workers=1, threads_per_worker=1, protocol="tls", security=security, dashboard_address=":0"
    ) as cluster:
        assert cluster.scheduler_address.startswith("tls://")
        yield cluster.scheduler_address


def test_a_fit_on_an_encrypted_cluster_has_the_bits_of_one_here(address, ours):
    there = runs.begin(None, backend=DaskBackend(address, security=security_of(ours), verify=0.0))
    np.testing.assert_array_equal(there.chains.draws, runs.begin(None).chains.draws)


def test_the_command_line_takes_certificates(address, ours, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.standard_normal(40)
    (tmp_path / "data.csv").write_text(
        "x,y\n" + "".join(f"{a},{a + b}\n" for a, b in zip(x, rng.normal(size=40), strict=True))
    )
    files = ["--dask-tls-ca", ours / CERT, "--dask-tls-cert", ours / CERT, "--dask-tls-key", ours / KEY]
    budget = ["--warmup-steps", "60", "--sampling-steps", "20", "--draws", "10", "--chains", "2", "--hidden", "4"]
    command = ["fit", tmp_path / "data.csv", "-t", "y", "--out", tmp_path / "run", "--dask", address, *files, *budget]
    done = CliRunner().invoke(app, [*map(str, command), "--task", "regression", "--preset", "quick", "-q"])
    assert done.exit_code == 0, done.output
    assert mile.load(tmp_path / "run").fit_.chains.draws.shape[:2] == (2, 10)


def test_nobody_gets_in_without_the_right_certificate(address, theirs):
    for backend in (DaskBackend(address), DaskBackend(address, security=security_of(theirs))):
        with pytest.raises(ClusterError, match="certificates"):
            runs.begin(None, backend=backend)


def test_certificates_that_cannot_be_used_are_refused_before_anything_is_sent(ours, theirs, tmp_path):
    (tmp_path / "text.pem").write_text("no certificate")
    for files, words in (
        ((tmp_path / "none.pem", ours / CERT, ours / KEY), "there is no file for the TLS ca"),
        ((tmp_path / "text.pem", ours / CERT, ours / KEY), "the TLS ca cannot be used"),
        ((ours / CERT, ours / CERT, theirs / KEY), "the TLS cert and key cannot be used"),
    ):
        with pytest.raises(ValueError, match=words):
            tls_security(*files)
    with pytest.raises(ValueError, match="must begin with tls://"):
        DaskBackend("tcp://127.0.0.1:1", security=security_of(ours))
    with pytest.raises(ValueError, match="belongs to the address"):
        DaskBackend(security=security_of(ours))
    for options, words in (
        (["--dask-tls-ca", "a"], "name one with --dask tls://"),
        (["--dask", "tls://127.0.0.1:1", "--dask-tls-ca", "a"], "give all three"),
    ):
        done = CliRunner().invoke(app, ["resume", str(tmp_path), *options])
        assert done.exit_code != 0
        assert words in " ".join(done.output.split())
