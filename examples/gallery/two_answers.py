"""Two answers: where one number is not enough.

A robot's arm reaches a height with its elbow up or down: for one height there are two angles. Their mean is an angle
that reaches nothing. A mixture of normal distributions predicts both, and how probable each is.

Picture: The predicted density of the angle for each height as shades of blue. It has two branches that meet at the
largest height, and the measured angles lie on both.
"""

import matplotlib.pyplot as plt
import numpy as np

from mile import MileRegressor, metrics

HEIGHTS, ANGLES = np.linspace(0.05, 1.0, 120), np.linspace(-0.2, 3.4, 160)


def measured(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return heights and the angles that led to them; small angles were used more often."""
    angle = np.where(rng.uniform(size=n) < 0.6, rng.uniform(0.0, 1.57, n), rng.uniform(1.57, 3.14, n))
    return np.sin(angle) + 0.02 * rng.normal(size=n), angle


def main() -> None:
    """Fit, compare with a normal distribution, draw the density."""
    height, angle = measured(np.random.default_rng(0), 400)
    new_height, new_angle = measured(np.random.default_rng(1), 500)
    for likelihood in ("gaussian", "mixture"):
        model = MileRegressor(likelihood=likelihood, preset="quick", n_chains=6, random_state=0)
        model.fit(height[:, None], angle)
        score = metrics.lppd(model.predictive(new_height[:, None]), new_angle)
        print(f"{likelihood}: log density of new angles {score:.2f}")

    rows = np.repeat(HEIGHTS, len(ANGLES))
    density = np.exp(model.predictive(rows[:, None]).log_prob(np.tile(ANGLES, len(HEIGHTS))))
    _, axis = plt.subplots(figsize=(8, 3.8), layout="constrained", dpi=110)
    axis.pcolormesh(HEIGHTS, ANGLES, density.reshape(len(HEIGHTS), -1).T, cmap="Blues", vmax=2.5, shading="nearest")
    axis.scatter(height, angle, s=5, color="#e07a2f")
    axis.set(xlabel="height", ylabel="angle in radians", xlim=(0.05, 1.0), ylim=(-0.2, 3.4))
    plt.savefig("two_answers.png")


if __name__ == "__main__":
    main()
