"""Sampling of any log density that a user writes: `mile.sample`."""

import hashlib
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from mile._compilation import use_compilation_cache
from mile._deadline import Deadline
from mile._errors import FitFailedError, warn
from mile._progress import show_progress
from mile.configuration import describe
from mile.execution import Backend, Fingerprint, InProcess, choose_backend
from mile.posterior import FunctionTarget
from mile.samplers import Sampler, configure
from mile.sampling.chains import Chains, describe_failures, run_chains, saved_when_stopped, seed_for
from mile.sampling.timing import check_memory
from mile.storage import Manifest, check_space, fingerprint, has_run, open_run, read_manifest

_ADVICE = "Call mile.sample again with the same arguments to resume."


def sample(
    logdensity: Callable[[Array], Array],
    positions: Float[Array, "chain d"] | np.ndarray,
    sampler: str | Sampler = "mile",
    preset: str = "paper",
    random_state: int | None = None,
    *,
    warmup_steps: int | None = None,
    sampling_steps: int | None = None,
    n_draws: int | None = None,
    step_size: float | None = None,
    run_dir: str | Path | None = None,
    force: bool = False,
    backend: Backend | None = None,
    verbose: int = 0,
) -> Chains:
    """Sample any JAX log density with one chain from each starting point.

    Parameters
    ----------
    logdensity
        Pure JAX function from a vector (d,) to an unnormalized log density.
    positions
        Starting points, array (K, d) with d of at least 2.
    sampler, preset, warmup_steps, sampling_steps, n_draws
        The method and its budgets per chain; None takes the preset's.
    random_state
        Seed; None draws one and keeps it in the result.
    step_size
        First step size to try; None means a quarter of the root of d.
    run_dir
        Folder that takes draws and checkpoints while the chains run. Calling again with the same arguments resumes
        a run that was stopped; the draws are the same as if it had not been.
    force
        Resume a run that was begun by another version or on another kind of machine; its manifest records it.
    backend
        Where the chains run, such as `mile.execution.DaskBackend(...)`; default: in this process, on all cores.
    verbose
        Above zero shows progress bars.

    Returns
    -------
    Chains

    Raises
    ------
    ValueError
        If an argument is impossible.
    FitFailedError
        If every chain failed.
    RunMismatchError, RunLockedError, CorruptFileError
        If `run_dir` holds another run, one that is under way, or one that is damaged.
    ResourceError
        If memory or disk space is too small.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np, mile
    >>> result = mile.sample(lambda x: -0.5 * x @ x, np.zeros((2, 3)), preset="quick", random_state=0)
    >>> result.draws.shape
    (2, 200, 3)
    """
    positions = np.asarray(positions)
    if positions.ndim != 2 or positions.shape[0] < 1 or positions.shape[1] < 2:
        raise ValueError(f"positions must be an array (K, d) with K >= 1 and d >= 2; got shape {positions.shape}.")
    if not jnp.issubdtype(positions.dtype, jnp.floating):
        raise ValueError(f"positions must be floating-point numbers; got dtype {positions.dtype}.")
    if not callable(logdensity):
        raise ValueError(f"logdensity must be a function of one vector; got {logdensity!r}.")
    positions = positions.astype(jax.dtypes.canonicalize_dtype(positions.dtype), copy=False)
    value = jax.eval_shape(logdensity, jax.ShapeDtypeStruct(positions.shape[1:], positions.dtype))
    if getattr(value, "shape", None) != ():
        raise ValueError(f"logdensity must return one number; it returns {value}.")
    configured = configure(
        sampler, preset, warmup_steps=warmup_steps, sampling_steps=sampling_steps, n_draws=n_draws
    ).with_start(step_size if step_size is not None else 0.25 * float(np.sqrt(positions.shape[1])))
    if configured.needs_rows:
        raise ValueError(
            f"sampler {configured.name!r} works with the rows of a data set, and a function has none: "
            "choose another sampler, or use mile.fit."
        )
    use_compilation_cache()
    target, deadline, seed = FunctionTarget(logdensity), Deadline(), seed_for(run_dir, random_state)
    draw_bytes = positions.itemsize * len(positions) * configured.n_draws * (positions.shape[1] + 2)
    folder = None if run_dir is None else Path(run_dir)
    known = read_manifest(folder).fingerprint if folder is not None and has_run(folder) else None
    with show_progress(verbose > 0) as progress, choose_backend(backend).open_pool() as pool:
        kind = pool.agree(partial(_identify, positions.dtype.name), known)
        run_all = partial(
            run_chains,
            configured,
            target,
            positions,
            seed=seed,
            progress=progress,
            deadline=deadline,
            backend=pool,
        )
        if folder is None:
            check_memory(draw_bytes)
            chains = run_all()
        else:
            if known is None:
                check_space(folder, draw_bytes)
            manifest = _manifest(logdensity, positions, configured, seed, kind)
            with (
                open_run(folder, manifest, {}, force=force) as run,
                saved_when_stopped(folder, deadline, advice=_ADVICE),
            ):
                chains = run_all(run=run)
                run.finish(dict(enumerate(chains.status)))
    failed = describe_failures(chains.status, range(len(chains.status)))
    if not chains.ok.any():
        raise FitFailedError(f"All chains failed. {failed}")
    if failed:
        warn(failed)
    return chains


def _identify(dtype: str) -> Fingerprint:
    """Return the fingerprint of what computes a log density in this process."""
    return fingerprint(is_native=False, width=InProcess().width, dtype=dtype)


def _manifest(
    logdensity: Callable[[Array], Array], positions: np.ndarray, sampler: Sampler, seed: int, kind: Fingerprint
) -> Manifest:
    """Describe a run on a function, which is identified by its program and the constants in it."""
    traced = jax.make_jaxpr(logdensity)(jax.ShapeDtypeStruct(positions.shape[1:], positions.dtype))
    text = re.sub("0x[0-9a-f]+", "", str(traced.jaxpr))  # addresses differ from process to process
    function = hashlib.sha256(text.encode())
    for constant in traced.consts:
        array = np.asarray(constant)
        function.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
    return Manifest(
        fingerprint=dict(kind),
        configuration={"sampler": describe(sampler), "n_chains": len(positions), "logdensity": function.hexdigest()},
        data={"sha256": hashlib.sha256(positions.tobytes()).hexdigest(), "shape": list(positions.shape)},
        seed=seed,
    )
