"""How many single rows `mile serve` answers in a second, and how long each waits: a client on the same machine.

    python benchmarks/service.py [--seconds 30] [--connections 16] [--draws 128] [--model FILE]

A regression of 8 columns by two layers of 16 units, compressed; each connection sends the next row when it has the
answer to the last. The goals beside the numbers are of issue 25, for an idle machine with two cores, of which the
client takes one. `server` is the processor time of the service for a request, which other programs change little.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

COMMAND = [sys.executable, "-c", "from mile.cli import app; app()", "serve"]


def made_model(path, n_draws):
    import mile

    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 8))
    y = X[:, 0] + np.sin(2 * X[:, 1]) + 0.3 * rng.normal(size=1000)
    quick = {"hidden_layer_sizes": (16, 16), "preset": "quick", "warmup_steps": 300, "sampling_steps": 200}
    model = mile.MileRegressor(**quick, n_draws=100, random_state=0).fit(X, y)
    model.compress(X, n_draws=n_draws).save(path)


async def one_connection(host, port, bodies, until, times):
    reader, writer = await asyncio.open_connection(host, port)
    head = "POST /predict HTTP/1.1\r\nHost: service\r\nContent-Type: application/json\r\nContent-Length: "
    requests = [f"{head}{len(body)}\r\n\r\n{body}".encode() for body in bodies]
    place = 0
    while time.perf_counter() < until:
        began = time.perf_counter()
        writer.write(requests[place % len(requests)])
        answer = await reader.readuntil(b"\r\n\r\n")
        lines = answer.lower().split(b"\r\n")
        if not lines[0].startswith(b"http/1.1 200"):
            raise SystemExit(answer.decode())
        length = next(line for line in lines if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.split(b":")[1]))
        times.append(time.perf_counter() - began)
        place += 1
    writer.close()
    await writer.wait_closed()


async def loaded(host, port, n_connections, seconds, bodies):
    times, until = [], time.perf_counter() + seconds
    await asyncio.gather(
        *(one_connection(host, port, bodies[start::n_connections], until, times) for start in range(n_connections))
    )
    return np.array(times)


def processor_seconds(process):
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--draws", type=int, default=128)
    parser.add_argument("--model", type=Path, default=None, help="Another model of a table, instead.")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        path = given.model or Path(name) / "small.mile"
        if given.model is None:
            made_model(path, given.draws)
        arguments = [*COMMAND, path, "--port", "0", "--state", name]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
            try:
                process.stdout.readline()
                host, port = process.stdout.readline().split()[1].strip("/").removeprefix("http://").split(":")
                measure(host, int(port), given, process)
            finally:
                process.terminate()


def measure(host, port, given, process):
    import urllib.request

    with urllib.request.urlopen(f"http://{host}:{port}/schema", timeout=30) as reply:
        typical = json.load(reply)["typical_row"]
    rng, bodies = np.random.default_rng(1), []
    for _ in range(max(256, given.connections)):
        noise = {key: value + round(rng.normal(), 4) for key, value in typical.items() if isinstance(value, float)}
        bodies.append(json.dumps({"row": typical | noise}))
    asyncio.run(loaded(host, port, given.connections, 1.0, bodies))
    before = processor_seconds(process)
    times = asyncio.run(loaded(host, port, given.connections, given.seconds, bodies))
    cost = (processor_seconds(process) - before) / len(times)
    p50, p99 = 1e3 * np.quantile(times, [0.5, 0.99])
    print(f"{given.connections} connections, {given.seconds:g} s, load of this machine {os.getloadavg()[0]:.1f}")
    print(f"  requests  {len(times) / given.seconds:8.0f} /s  (goal 1,000)")
    print(f"  p50       {p50:8.2f} ms")
    print(f"  p99       {p99:8.2f} ms  (goal 30)")
    print(f"  server    {1e3 * cost:8.3f} ms  of processor time for each")


if __name__ == "__main__":
    main()
