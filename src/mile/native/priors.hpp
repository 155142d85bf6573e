// Log densities of priors without their constants, added to a log likelihood with their gradients. The formulas are those
// of the folder priors/. All sums of a chain run in a fixed order.
#pragma once
#include "dynamics.hpp"

namespace mile::MILE_ISA {

// One precision for all parameters; coefficients: that one.
static double add_normal(int64_t n, double precision, const float* position, float* gradient) {
  const float by = float(precision);
  for (int64_t k = 0; k < n; k += lanes) store(gradient + k, load(gradient + k) - by * load(position + k));
  return -0.5 * precision * reduce(n, [&](int64_t k) { return load(position + k) * load(position + k); });
}

// Coefficients: the precision of each parameter.
static double add_normals(int64_t n, const float* precision, const float* position, float* gradient) {
  auto slope = [&](int64_t k) { return load(precision + k) * load(position + k); };
  for (int64_t k = 0; k < n; k += lanes) store(gradient + k, load(gradient + k) - slope(k));
  return -0.5 * reduce(n, [&](int64_t k) { return slope(k) * load(position + k); });
}

// Coefficients: one over the scale of each parameter. At zero the slope is zero; NaN stays NaN.
static double add_laplace(int64_t n, const float* rate, const float* position, float* gradient) {
  for (int64_t k = 0; k < n; k += lanes) {
    V w = load(position + k), c = load(rate + k);
    store(gradient + k, load(gradient + k) - (w > 0.0f ? c : w < 0.0f ? -c : w));
  }
  return -reduce(n, [&](int64_t k) {
    V z = load(rate + k) * load(position + k);
    return z < 0.0f ? -z : z;
  });
}

// Coefficients: one over degrees times the squared scale of each parameter.
static double add_student_t(int64_t n, double degrees, const float* coefficients, const float* position,
                            float* gradient) {
  const float by = float(degrees + 1.0);
  for (int64_t k = 0; k < n; k += lanes) {
    V w = load(position + k), slope = load(coefficients + k) * w;
    store(gradient + k, load(gradient + k) - by * slope / (1.0f + slope * w));
  }
  return -0.5 * (degrees + 1.0) * reduce(n, [&](int64_t k) {
    V w = load(position + k);
    return log(1.0f + load(coefficients + k) * w * w);
  });
}

// Unknown scales, integrated out. A run of parameters may begin anywhere, so the end of it is done number by number.
static double squares_of(int64_t n, const float* w) {
  const int64_t whole = n / lanes * lanes;
  double sum = reduce(whole, [&](int64_t k) { return load(w + k) * load(w + k); });
  for (int64_t k = whole; k < n; ++k) sum += double(w[k]) * double(w[k]);
  return sum;
}

static void pull(int64_t n, float by, const float* w, float* gradient) {
  const int64_t whole = n / lanes * lanes;
  for (int64_t k = 0; k < whole; k += lanes) store(gradient + k, load(gradient + k) - by * load(w + k));
  for (int64_t k = whole; k < n; ++k) gradient[k] -= by * w[k];
}

// n neighbors with a common scale; `inverse` is one over degrees times the squared scale.
static double add_group(int64_t n, const Prior& prior, double inverse, const float* w, float* gradient) {
  const double ratio = inverse * squares_of(n, w), weight = prior.power * (prior.degrees + double(n));
  pull(n, float(weight * inverse / (1.0 + ratio)), w, gradient);
  return -0.5 * weight * __builtin_log1p(ratio);
}

// A matrix [rows][columns] with a scale for each column.
static double add_columns(int64_t rows, int64_t columns, const Prior& prior, double inverse, const float* w,
                          float* gradient) {
  const double weight = prior.power * (prior.degrees + double(rows));
  const float factor = float(inverse), by = float(weight * inverse);
  double logs = 0.0;
  int64_t c = 0;
  for (; c + lanes <= columns; c += lanes) {
    V squares = {};
    for (int64_t k = c; k < rows * columns; k += columns) squares += load(w + k) * load(w + k);
    V ratio = 1.0f + factor * squares, pulls = by / ratio;
    for (int64_t k = c; k < rows * columns; k += columns) store(gradient + k, load(gradient + k) - pulls * load(w + k));
    logs += sum(log(ratio));
  }
  for (; c < columns; ++c) {
    double squares = 0.0;
    for (int64_t k = c; k < rows * columns; k += columns) squares += double(w[k]) * double(w[k]);
    const float pulls = float(weight * inverse / (1.0 + inverse * squares));
    for (int64_t k = c; k < rows * columns; k += columns) gradient[k] -= pulls * w[k];
    logs += __builtin_log1p(inverse * squares);
  }
  return -0.5 * weight * logs;
}

// Coefficients: `inverse` of all groups, and the precision of biases.
static double add_grouped(const Prior& prior, const float* position, float* gradient) {
  const double inverse = prior.coefficients[0], precision = prior.power * double(prior.coefficients[1]);
  double value = 0.0;
  for (int64_t b = 0; b < prior.n_blocks; ++b) {
    const int64_t *block = prior.blocks + 3 * b, rows = block[1], columns = block[2], size = rows * columns;
    switch (Grouping(block[0])) {
      case Grouping::normal:
        value -= 0.5 * precision * squares_of(size, position);
        pull(size, float(precision), position, gradient);
        break;
      case Grouping::whole:
        value += add_group(size, prior, inverse, position, gradient);
        break;
      case Grouping::rows:
        for (int64_t r = 0; r < rows; ++r)
          value += add_group(columns, prior, inverse, position + r * columns, gradient + r * columns);
        break;
      case Grouping::columns:
        value += add_columns(rows, columns, prior, inverse, position, gradient);
        break;
    }
    position += size;
    gradient += size;
  }
  return value;
}

// Add a prior's gradient; return its log density without the constant.
static double add_prior(int64_t n, const Prior& prior, const float* position, float* gradient) {
  const float* coefficients = prior.coefficients;
  switch (prior.family) {
    case Family::laplace:
      return add_laplace(n, coefficients, position, gradient);
    case Family::student_t:
      return add_student_t(n, prior.degrees, coefficients, position, gradient);
    case Family::grouped:
      return add_grouped(prior, position, gradient);
    default:
      return prior.n_coefficients == 1 ? add_normal(n, coefficients[0], position, gradient)
                                       : add_normals(n, coefficients, position, gradient);
  }
}

}  // namespace mile::MILE_ISA
