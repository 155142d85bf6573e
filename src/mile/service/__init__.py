"""A fitted model as an HTTP service, for `mile serve`: predictions, explanations, drift, and a page to try them."""
