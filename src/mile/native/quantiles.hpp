// Moments and quantiles of mixtures of normal distributions, one row after another. Locations and precisions are floats,
// as the network gives them. A quantile is found by Newton's method on sums in single precision; where these are not
// exact enough, far out or in a gap between components, it goes on with sums in double precision.
#pragma once
#include <cmath>

#include "mixture.hpp"

namespace mile::MILE_ISA {

struct Sums {
  double below, height;  // distribution function and density, of all components of one weight together
};

// 1 - Phi(|z|) to 1e-9, given exp(-z^2 / 2): as `scaled_erfc` in mixture.hpp, with half of it interpolated at 12 nodes.
MILE_INLINE V upper_tail(V z, V e) {
  const float coefficients[] = {-0.000114373617f, 0.000198352319f, 0.000844331115f, -0.00492274555f,
                                0.0141982411f,    -0.0293229914f,  0.046148184f,    -0.0544072925f,
                                0.0411387088f,    0.00179315505f,  -0.070120304f,   0.618756309f};
  const V u = at_most((z < 0.0f ? -z : z) * 0.70710678f, 40.0f), far = u + 3.75f, near = 1.0f + 2.0f * u;
  const V inverse = 1.0f / (far * near), s = (u - 3.75f) * near * inverse;
  V p = fill(coefficients[0]);
  for (int k = 1; k < 12; ++k) p = p * s + coefficients[k];
  return e * p * far * inverse;
}

MILE_INLINE void add_component(V y, V at, V inverse, V& below, V& height) {
  const V z = (y - at) * inverse, half_square = -0.5f * z * z;
  const V e = half_square < -87.0f ? (V){} : exp(half_square), tail = upper_tail(z, e);
  below += z < 0.0f ? tail : 1.0f - tail;
  height += e * inverse;
}

// Numbers at the beginning of a vector, copies of the last behind them.
MILE_INLINE V load_some(const float* p, int n) {
  V v;
  for (int k = 0; k < lanes; ++k) v[k] = p[k < n ? k : n - 1];
  return v;
}

static Sums sums_in_floats(int64_t n, const float* location, const float* precision, double y_exact) {
  constexpr int64_t chunk = 1024;  // in which sums stay in single precision
  const V y = fill(float(y_exact));
  double below = 0.0, height = 0.0;
  int64_t k = 0;
  while (k + lanes <= n) {
    V b = {}, h = {};
    const int64_t stop = k + chunk < n ? k + chunk : n;
    for (; k + lanes <= stop; k += lanes) add_component(y, load(location + k), load(precision + k), b, h);
    below += sum(b);
    height += sum(h);
  }
  if (k < n) {
    V b = {}, h = {};
    add_component(y, load_some(location + k, int(n - k)), load_some(precision + k, int(n - k)), b, h);
    for (int q = 0; q < n - k; ++q) {
      below += b[q];
      height += h[q];
    }
  }
  return {below, height * 0.39894228040143268};
}

static Sums sums_in_doubles(int64_t n, const float* location, const float* precision, double y) {
  constexpr int64_t chunk = 512;
  double at[chunk], inverse[chunk], below = 0.0, height = 0.0;
  for (int64_t from = 0; from < n; from += chunk) {
    const int64_t length = chunk < n - from ? chunk : n - from;
    for (int64_t k = 0; k < length; ++k) {
      at[k] = location[from + k];
      inverse[k] = precision[from + k];
    }
    double b, h;
    mixture(length, at, inverse, y, &b, &h);
    below += b * double(length);
    height += h * double(length);
  }
  return {below, height};
}

// A row's components, in groups of neighbors that have the same weight: where each ends, and its share of the mixture.
struct Row {
  const float *location, *precision;
  const int64_t* ends;
  const double* shares;
  int64_t n_groups;

  template <class F>
  Sums all(const F& sums, double y) const {
    Sums total = {};
    for (int64_t g = 0, from = 0; g < n_groups; from = ends[g++]) {
      const int64_t n = ends[g] - from;
      const Sums found = sums(n, location + from, precision + from, y);
      total.below += shares[g] * found.below / double(n);
      total.height += shares[g] * found.height / double(n);
    }
    return total;
  }
};

struct Moments {
  double mean, variance, spread;  // of the means; the mean variance; the variance of the means
  double largest_precision;
};

MILE_INLINE Moments moments_of(const Row& row) {
  Moments found = {};
  const float center = row.location[0];
  double away = 0.0, square = 0.0;
  V largest = {};
  for (int64_t g = 0, from = 0; g < row.n_groups; from = row.ends[g++]) {
    const int64_t n = row.ends[g] - from;
    double a = 0.0, s = 0.0, v = 0.0;
    int64_t k = 0;
    while (k < n) {
      V va = {}, vs = {}, vv = {};
      const int64_t stop = k + 1024 < n ? k + 1024 : n;
      for (; k + lanes <= stop; k += lanes) {
        const V d = load(row.location + from + k) - center, inverse = load(row.precision + from + k);
        va += d;
        vs += d * d;
        vv += 1.0f / (inverse * inverse);
        largest = largest > inverse ? largest : inverse;
      }
      a += sum(va);
      s += sum(vs);
      v += sum(vv);
      if (stop == n)
        for (; k < n; ++k) {
          const float d = row.location[from + k] - center, inverse = row.precision[from + k];
          a += d;
          s += double(d) * d;
          v += 1.0 / (double(inverse) * inverse);
          if (inverse > largest[0]) largest[0] = inverse;
        }
    }
    const double share = row.shares[g] / double(n);
    away += share * a;
    square += share * s;
    found.variance += share * v;
  }
  for (int q = 0; q < lanes; ++q)
    if (largest[q] > found.largest_precision) found.largest_precision = largest[q];
  found.mean = center + away;
  found.spread = square - away * away > 0.0 ? square - away * away : 0.0;
  return found;
}

// Newton's method inside a bracket that only shrinks, from y. Where a step leaves the bracket or is not half as long as
// the one before, the middle takes over, or, beside an open end, a step that doubles. The last step leaves an error of
// about its square, times the curvature, which the narrowest component bounds.
// Number is the type that `evaluate` takes y in.
template <class Number, class F>
MILE_INLINE double solve(const F& evaluate, double level, double y, double width, double allowed, double* height) {
  double lower = -INFINITY, upper = INFINITY, before = INFINITY, reach = width;
  for (int k = 0; k < 200; ++k) {
    y = double(Number(y));
    const Sums found = evaluate(y);
    const double error = found.below - level;
    *height = found.height;
    if (error == 0.0 || !(error == error)) return error == 0.0 ? y : error;
    (error < 0.0 ? lower : upper) = y;
    double next = y - error / found.height;
    const double step = std::fabs(next - y);
    if (step * step <= allowed && next >= lower && next <= upper) return next;
    if (!(next > lower && next < upper && step < 0.5 * before && step < 8.0 * width)) {
      if (lower > -INFINITY && upper < INFINITY) {
        next = 0.5 * (lower + upper);
      } else {
        next = y + (error < 0.0 ? reach : -reach);
        reach *= 2.0;
      }
    }
    before = std::fabs(next - y);
    if (before <= 4e-16 * std::fabs(y) || double(Number(next)) == y) return next;
    y = next;
  }
  return y;
}

// What sums in single precision are wrong by, and what a quantile may be wrong by, in standard deviations of the mixture.
constexpr double float_error = 3e-8, quantile_error = 5e-7;
constexpr int sampled = 32;  // of so many components one gives the first guess

// Quantiles of one row at some levels; `guess` is memory for n_components / 32 + n_groups numbers, four times.
static void row_quantiles(const Row& row, const Moments& moments, const double* levels, const double* normal,
                          int64_t n_levels, float* guess, int64_t guess_size, int64_t* guess_ends, double* out,
                          int64_t stride) {
  const double width = std::sqrt(moments.variance + moments.spread);
  if (!(width == width) || width == INFINITY) {
    for (int64_t l = 0; l < n_levels; ++l) out[l * stride] = NAN;
    return;
  }
  float *location = guess, *precision = guess + guess_size;
  int64_t count = 0;
  for (int64_t g = 0, from = 0; g < row.n_groups; from = row.ends[g++]) {
    const int64_t n = row.ends[g] - from;
    for (int64_t k = n > sampled ? sampled / 2 : n / 2; k < n; k += sampled, ++count) {
      location[count] = row.location[from + k];
      precision[count] = row.precision[from + k];
    }
    guess_ends[g] = count;
  }
  const Row few = {location, precision, guess_ends, row.shares, row.n_groups};
  // A step within the narrowest component may end with its mass, however wide the mixture is.
  const double within = 0.02 / moments.largest_precision, wanted = quantile_error * width / moments.largest_precision;
  const double exact = wanted < within * within ? wanted : within * within;
  for (int64_t l = 0; l < n_levels; ++l) {
    double height, y = moments.mean + normal[l] * width;
    y = solve<float>([&](double at) { return few.all(sums_in_floats, at); }, levels[l], y, width, 1e-2 * width * width,
                     &height);
    y = solve<float>([&](double at) { return row.all(sums_in_floats, at); }, levels[l], y, width, exact, &height);
    if (!(float_error <= quantile_error * width * height))
      y = solve<double>([&](double at) { return row.all(sums_in_doubles, at); }, levels[l], y, width, 1e-3 * exact,
                        &height);
    out[l * stride] = y;
  }
}

}  // namespace mile::MILE_ISA
