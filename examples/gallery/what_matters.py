"""What matters: which columns a model uses, and how.

How far did diabetes advance within a year? The fit uses ten columns of 442 patients. Importance says what the
predictions lose when a column is shuffled, with an interval; a curve says how the prediction changes along one
column, and how sure the model is of that.

Picture: Left, the importance of the columns with intervals; body mass and a blood value lead. Right, the effect of
body mass with a band: it rises, and the band is wide where there are few patients.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes

from mile import MileRegressor


def main() -> None:
    """Fit, explain, draw."""
    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    X = X.rename(columns={"bmi": "body mass", "bp": "blood pressure", "s5": "triglycerides"})
    model = MileRegressor(preset="quick", n_chains=6, random_state=0).fit(X, y)
    explanation = model.explain(X, y)
    print("matter beyond chance:", ", ".join(explanation.important))

    _, axes = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained", dpi=110)
    explanation.plot(ax=axes[0])
    explanation.plot("body mass", target="progression", ax=axes[1])
    plt.savefig("what_matters.png")


if __name__ == "__main__":
    main()
