"""The cost model: arithmetic, time and bytes of a chain from the sizes of its network, its data and its budget."""

from dataclasses import dataclass
from itertools import pairwise

from scaling.setting import Stage

from mile.ensemble.training import Training
from mile.samplers import Mile

FLOAT = 4  # bytes
_GRADIENTS_PER_STEP = 2
# Vectors of the network's size in a checkpoint, besides a few numbers: position, both moments of Adam and the best
# position; position, velocity, gradient, mean and variance; position, velocity, gradient, and for the virial ratio
# the means of two of them and of their product.
_VECTORS = {"ensemble": 4, "phase I": 5, "phase II": 5, "phase III": 3, "sampling": 6}


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A table and a perceptron for it."""

    name: str
    n_rows: int  # in the posterior
    n_inputs: int
    hidden: tuple[int, ...]
    n_outputs: int = 2  # a Gaussian's mean and scale

    @property
    def layers(self) -> list[tuple[int, int]]:
        """Inputs and outputs of each layer."""
        return list(pairwise((self.n_inputs, *self.hidden, self.n_outputs)))

    @property
    def dimension(self) -> int:
        """Weights and biases."""
        return sum((fan_in + 1) * fan_out for fan_in, fan_out in self.layers)

    @property
    def gradient_flops(self) -> float:
        """Arithmetic of the matrix products of one gradient on all rows.

        A layer multiplies its inputs and its weights (2 operations for each row and weight), then in the backward
        pass errors and inputs for the gradient of the weights (2), then errors and weights for the errors of the
        layer below (2); the first layer has none below.
        """
        weights = sum(fan_in * fan_out for fan_in, fan_out in self.layers)
        first_in, first_out = self.layers[0]
        return 2.0 * self.n_rows * (3 * weights - first_in * first_out)

    @property
    def data_bytes(self) -> int:
        """What every worker holds: rows, response, weight of each row."""
        return FLOAT * self.n_rows * (self.n_inputs + 2)

    def chain_flops(self, sampler: Mile) -> float:
        """Arithmetic of one chain without its ensemble member."""
        return sampler.gradient_evaluations() * self.gradient_flops

    def draw_bytes(self, sampler: Mile) -> int:
        """What one chain leaves: weights, log density and energy change of each draw."""
        return FLOAT * sampler.n_draws * (self.dimension + 2)


@dataclass(frozen=True, kw_only=True)
class Speed:
    """What one core does: a share of its matrix-product peak, and the vector work of a step beside the gradients."""

    peak: float  # operations per second of float32 matrix products
    share: float  # of it that gradients reach; depends on the width of the layers
    step_seconds: float = 0.0  # of a step, whatever its size
    coordinate_seconds: float = 0.0  # of a step for each parameter: random numbers, velocity, moments

    def seconds_per_step(self, problem: Problem) -> float:
        """Time of one step of one chain on one core."""
        gradients = _GRADIENTS_PER_STEP * problem.gradient_flops / (self.share * self.peak)
        return gradients + self.step_seconds + self.coordinate_seconds * problem.dimension

    def seconds_per_epoch(self, problem: Problem) -> float:
        """Time of one epoch of a member: one gradient of each row; small batches reach a smaller share."""
        return problem.gradient_flops / (self.share * self.peak)


def checkpoint_bytes(problem: Problem, stage: str, sampler: Mile) -> int:
    """Return what a chain carries from block to block in a stage of MILE."""
    floats = _VECTORS[stage] * problem.dimension
    if stage == "phase III":
        # The chosen coordinates at every step, or every few: room for all of them travels from the first block on.
        length = sampler.with_start(1.0).phases[-2]
        floats += min(length.n_coordinates, problem.dimension) * (1 + length.capacity)
    return FLOAT * floats


def stages(
    problem: Problem, sampler: Mile, training: Training, step_seconds: float, epoch_seconds: float
) -> tuple[Stage, ...]:
    """Return what a fit does between its barriers; every member trains for as long as it may."""
    phases = sampler.with_start(training.learning_rate).phases
    ensemble = Stage(
        name="ensemble",
        is_training=True,
        n_steps=training.max_epochs,
        step_seconds=epoch_seconds,
        checkpoint_bytes=checkpoint_bytes(problem, "ensemble", sampler) + FLOAT * training.max_epochs,
    )
    draws = problem.draw_bytes(sampler) / sampler.sampling_steps
    return (
        ensemble,
        *(
            Stage(
                name=phase.name,
                n_steps=phase.n_steps,
                step_seconds=step_seconds,
                checkpoint_bytes=checkpoint_bytes(problem, phase.name, sampler),
                record_bytes=draws if phase is phases[-1] else 0.0,
            )
            for phase in phases
        ),
    )
