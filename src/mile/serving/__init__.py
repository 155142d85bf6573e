"""Predictions of a saved model in a process that needs little: neither JAX nor scikit-learn is imported."""
