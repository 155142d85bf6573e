// Log densities of other families than the normal one, and their derivatives with respect to the outputs of the network,
// one vector of rows at a time. What they compute, and why in this form, stands in the files of mile/likelihoods. Limits of
// links are taken in exponentials: a number z bent between `low` and `high` is ln(e^low + 1 / (e^-z + e^-high)).
#pragma once
#include "kernel.hpp"
#include "vectors.hpp"

namespace mile::MILE_ISA {

constexpr float inverse_scale_limit = 0.1f;  // of the bounded link, as in likelihoods/_links.py
constexpr float log_sqrt_two_pi = 0.9189385332046727f;
constexpr float log_sqrt_pi = 0.5723649429247001f;
constexpr float log_sqrt_two = 0.34657359027997264f;
constexpr float smallest_degrees = 2.1f, inverse_width_of_degrees = 0.01f, inverse_start_of_degrees = 0.125f;  // _tails.py
constexpr float most_stretch = 100.0f;     // of distances between thresholds, _thresholds.py
constexpr float lowest_output = -85.0f;    // beyond it every link has reached its limit, and exp(85) is a normal number
constexpr int most_parts = 8;              // of a mixture

// The rows of a tile and what the network says about them; outputs are overwritten by derivatives.
struct HeadRows {
  float* outputs;  // [output][tile]
  int64_t tile;
  const float *y, *weight;
  int active;

  float* output(int64_t o, int r) const { return outputs + o * tile + r; }
};

// Square root of positive numbers. As a loop, which every compiler turns into one instruction.
MILE_INLINE V root(V v) {
  V r;
  for (int k = 0; k < lanes; ++k) r[k] = __builtin_sqrtf(v[k]);
  return r;
}

// exp(x), and exp(x) - 1 without loss where x is small.
struct Exponential {
  V value, less_one;

  MILE_INLINE explicit Exponential(V x) {
    x = at_least(at_most(x, 88.0f), -87.0f);
    const float round = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
    const V shifted = x * 1.44269504088896341f + round;
    const V n = shifted - round, f = x - n * 0.693359375f + n * 2.12194440e-4f;
    V p = fill(1.9875691500e-4f);
    p = p * f + 1.3981999507e-3f;
    p = p * f + 8.3334519073e-3f;
    p = p * f + 4.1665795894e-2f;
    p = p * f + 1.6666665459e-1f;
    p = p * f + 5.0000001201e-1f;
    p = p * (f * f) + f;
    const V scale = bits<V>((bits<I>(shifted) << 23) + (127 << 23));
    value = scale * p + scale;
    less_one = scale * p + (scale - 1.0f);
  }
};

MILE_INLINE V size_of(V v) { return bits<V>(bits<I>(v) & 0x7fffffff); }

// log(1 + x) for x above -1, without loss where x is small.
MILE_INLINE V log1p(V x) {
  const V u = 1.0f + x;
  return log(u) + (x - (u - 1.0f)) / u;
}

// t P(t^2) for t = 1 / x, and its derivative with respect to log x.
struct InverseSeries {
  V value, slope;

  MILE_INLINE InverseSeries(const float (&coefficients)[8], V t) {
    const V square = t * t;
    V p = fill(coefficients[7]), d = {};
#pragma GCC unroll 7
    for (int k = 6; k >= 0; --k) {
      d = d * square + p;
      p = p * square + coefficients[k];
    }
    value = t * p;
    slope = -t * (p + 2.0f * square * d);
  }
};

// What Stirling's formula lacks, ln Gamma(x) - (x - 1/2) ln x + x - ln sqrt(2 pi), for x >= 1: to 3e-8 of it, and the slope
// to 3e-6. Interpolated at eight Chebyshev nodes of 1 / x^2 in [0, 1].
constexpr float stirling_coefficients[8] = {
    0.08333333111f, -0.002777487632f, 0.0007869202819f, -0.0005294073984f, 0.0004679721707f, -0.0003523826852f,
    0.000168737278f, -3.621702659e-05f};

// ln(Gamma(x + 1/2) / Gamma(x)) - 1/2 ln x for x >= 1.05, in the same way.
constexpr float half_step_coefficients[8] = {
    -0.1249999971f, 0.005207919808f, -0.001551985093f, 0.001073795952f, -0.0009967139426f, 0.0008057556958f,
    -0.000419388355f, 9.84431819e-05f};

// The bounded link: sigma^2 = floor^2 + s^2 with 1 / s = exp(-raw) + 1 / 10. With u = 1 / s and
// r = 1 / (u (1 + floor^2 u^2)), one over sigma^2 is u^3 r and the derivative of log sigma is exp(-raw) r: one division, no
// root. Below `lowest` s is nothing beside the smallest floor, 1e-6, and the cube would overflow.
struct Bounded {
  V precision, slope;

  Bounded(V raw, float floor) {
    constexpr float lowest = -27.0f;
    V inverse = exp(-at_least(raw, lowest)), u = inverse + inverse_scale_limit, square = u * u;
    V r = 1.0f / (u * (1.0f + floor * floor * square));
    precision = u * square * r;
    slope = inverse * r;
  }
};

// A number bent between two limits, as its exponential, and the derivative of that with respect to the output.
struct Within {
  V exponential, slope;

  MILE_INLINE Within(V raw, float exp_low, float exp_minus_high) {
    const V inverse = exp(-at_least(raw, lowest_output)), s = 1.0f / (inverse + exp_minus_high);
    exponential = exp_low + s;
    slope = inverse * s * s;
  }
};

// A mixture of normal distributions: log weights, locations and scales; `offsets` are added to the locations. With
// S = sum exp(l_k - z_k^2 / 2) / sigma_k only exponents are compared, so no logarithm of a scale is taken.
template <int parts>
static double normal_mixture(const Network& network, const HeadRows& rows) {
  const int n = parts ? parts : int(network.n_numbers);
  float offsets[most_parts];
  for (int k = 0; k < n; ++k) offsets[k] = float(network.numbers[k]);
  V total = {};
  for (int r = 0; r < rows.active; r += lanes) {
    const V w = load(rows.weight + r), y = load(rows.y + r);
    V precision[most_parts], slope[most_parts], residual[most_parts], exponent[most_parts], share[most_parts];
    V highest = {}, largest = {};
#pragma GCC unroll 3
    for (int k = 0; k < n; ++k) {
      const V logit = load(rows.output(k, r));
      const Bounded link(load(rows.output(2 * n + k, r)), network.floor);
      precision[k] = link.precision;
      slope[k] = link.slope;
      residual[k] = y - load(rows.output(n + k, r)) - offsets[k];
      exponent[k] = logit - 0.5f * (residual[k] * residual[k] * link.precision);
      highest = k && highest > exponent[k] ? highest : exponent[k];
      largest = k && largest > logit ? largest : logit;
    }
    V density = {}, normalizer = {};
#pragma GCC unroll 3
    for (int k = 0; k < n; ++k) {
      exponent[k] = exp(exponent[k] - highest) * root(precision[k]);
      share[k] = exp(load(rows.output(k, r)) - largest);
      density += exponent[k];
      normalizer += share[k];
    }
    const V by_normalizer = 1.0f / normalizer, by_density = w / density, weight_by_normalizer = w * by_normalizer;
    total += w * (highest - largest + log(density * by_normalizer) - log_sqrt_two_pi);
#pragma GCC unroll 3
    for (int k = 0; k < n; ++k) {
      const V chance = exponent[k] * by_density, scaled = residual[k] * precision[k];
      store(rows.output(k, r), chance - share[k] * weight_by_normalizer);
      store(rows.output(n + k, r), chance * scaled);
      store(rows.output(2 * n + k, r), chance * (residual[k] * scaled - 1.0f) * slope[k]);
    }
  }
  return sum(total);
}

static double student_t(const Network& network, const HeadRows& rows) {
  V total = {};
  for (int r = 0; r < rows.active; r += lanes) {
    const V w = load(rows.weight + r);
    const Bounded link(load(rows.output(1, r)), network.floor);
    const V residual = load(rows.y + r) - load(rows.output(0, r));
    const V scaled = residual * link.precision, square = residual * scaled;
    const V inverse = exp(-at_least(load(rows.output(2, r)), lowest_output)) * inverse_start_of_degrees;
    const V above = 1.0f / (inverse + inverse_width_of_degrees), degrees = smallest_degrees + above;
    const V by_degrees = 1.0f / degrees, ratio = square * by_degrees;
    const InverseSeries constant(half_step_coefficients, 2.0f * by_degrees);
    const V far = log1p(ratio), pull = (degrees + 1.0f) / (degrees + square);
    const V height = constant.value - log_sqrt_two - log_sqrt_pi + 0.5f * log(link.precision);
    total += w * (height - 0.5f * (degrees + 1.0f) * far);
    store(rows.output(0, r), w * pull * scaled);
    store(rows.output(1, r), w * (pull * square - 1.0f) * link.slope);
    const V d_degrees = constant.slope * by_degrees + 0.5f * (pull * ratio - far);
    store(rows.output(2, r), w * d_degrees * (inverse * above * above));
  }
  return sum(total);
}

// The mean of a count: ln of it less ln y, or, of zeros, ln of it alone.
struct CountMean {
  V positive, log_ratio, slope;  // y, but at least one; and the derivative of the log mean

  MILE_INLINE CountMean(const double* numbers, V y, V raw) {
    const Within bent(raw, float(numbers[2]), float(numbers[3]));
    positive = at_least(y, 1.0f);
    log_ratio = float(numbers[0]) + float(numbers[1]) * log(bent.exponential) - log(positive);
    slope = float(numbers[1]) * bent.slope / bent.exponential;
  }
};

// Numbers: center and spread of the log mean, exp of its lower limit, exp of minus its upper one.
static double poisson(const Network& network, const HeadRows& rows) {
  V total = {};
  for (int r = 0; r < rows.active; r += lanes) {
    const V w = load(rows.weight + r), y = load(rows.y + r);
    const CountMean mean(network.numbers, y, load(rows.output(0, r)));
    const Exponential ratio(mean.log_ratio);
    const InverseSeries remainder(stirling_coefficients, 1.0f / mean.positive);
    const V likely = mean.positive * (mean.log_ratio - ratio.less_one) - 0.5f * log(mean.positive) - remainder.value;
    total += w * (y > 0.0f ? likely - log_sqrt_two_pi : -ratio.value);
    store(rows.output(0, r), w * mean.slope * (y > 0.0f ? -mean.positive * ratio.less_one : -ratio.value));
  }
  return sum(total);
}

// ln w, and of w near one ln(1 + x): w is 1 + x, computed otherwise.
MILE_INLINE V log_one_plus(V x, V w) {
  const auto is_near = size_of(x) < 0.5f;
  const V u = is_near ? 1.0f + x : w;
  return log(u) + (is_near ? (x - (u - 1.0f)) / u : (V){});
}

// Numbers: as above; then the dispersion of the output zero, and exp of the limits of its logarithm, as there. With size
// r = 1 / dispersion, T = y + r, 1 + q = (mean + r) / T and 1 + p = (1 + q) y / mean, for y > 0 the log probability is
//   -y ln(1 + p) - r ln(1 + q) - 1/2 ln(2 pi y T / r) + d(T) - d(r) - d(y),
// where d is what Stirling's formula lacks; for y = 0 it is the second term, -r ln(1 + mean / r).
static double negative_binomial(const Network& network, const HeadRows& rows) {
  const double* numbers = network.numbers;
  const float start = float(numbers[4]);
  V total = {};
  for (int r = 0; r < rows.active; r += lanes) {
    const V w = load(rows.weight + r), y = load(rows.y + r);
    const CountMean mean(numbers, y, load(rows.output(0, r)));
    const Within dispersion(load(rows.output(1, r)), float(numbers[5]), float(numbers[6]));
    const V by_dispersion = 1.0f / dispersion.exponential, size = by_dispersion * (1.0f / start);
    const Exponential ratio(mean.log_ratio);
    const V all = y + size, by_all = 1.0f / all, expected = mean.positive * ratio.value + size;
    const V away = y > 0.0f ? mean.positive * ratio.less_one : ratio.value, q = away * by_all;  // mean - y, over T
    const V one_plus_q = expected * by_all, log_u = log_one_plus(q, one_plus_q), moved = away / expected;
    const V inverse = 1.0f / ratio.value;
    const V log_p = log_one_plus(-ratio.less_one * inverse * size * by_all, one_plus_q * inverse);
    // Of a size below one the remainder is taken one step up.
    const V by_size = dispersion.exponential * start, above = size + 1.0f;
    const auto is_small = size < 1.0f;
    const InverseSeries of_all(stirling_coefficients, at_most(by_all, 1.0f)), of_y(stirling_coefficients, 1.0f / mean.positive);
    const InverseSeries of_size(stirling_coefficients, is_small ? 1.0f / above : by_size);
    const V step = log1p(by_size), up = size / above;
    const V remainder = is_small ? of_size.value + (size + 0.5f) * step - 1.0f : of_size.value;
    const V slope = is_small ? up * of_size.slope + size * step - (size + 0.5f) / above : of_size.slope;
    const V likely = of_all.value - remainder - of_y.value - 0.5f * log(mean.positive * all * by_size) -
                     log_sqrt_two_pi - mean.positive * log_p;
    total += w * ((y > 0.0f ? likely : (V){}) - size * log_u);
    store(rows.output(0, r), -w * mean.slope * size * moved);
    const V d_size = size * (moved - log_u) +
                     (y > 0.0f ? 0.5f * y * by_all + size * by_all * of_all.slope - slope : (V){});
    store(rows.output(1, r), -w * d_size * dispersion.slope * by_dispersion);
  }
  return sum(total);
}

// Grades by thresholds on a logistic scale. Numbers: the thresholds where all outputs are zero. The first output moves them
// down, the others stretch the distances between them, from the middle one on.
static double ordinal(const Network& network, const HeadRows& rows) {
  const int n = int(network.n_numbers), middle = (n - 1) / 2;
  const double* cuts = network.numbers;
  V total = {};
  for (int r = 0; r < rows.active; r += lanes) {
    const V w = load(rows.weight + r), grade = load(rows.y + r);
    V at = {}, at_middle = {}, upper = {}, lower = {}, between = fill(1.0f);
    for (int k = 0; k < n; ++k) {
      upper = grade == float(k) ? at : upper;
      lower = grade == float(k + 1) ? at : lower;
      if (k == middle) at_middle = at;
      if (k + 1 == n) break;
      const Within stretch(load(rows.output(k + 1, r)), 1.0f / most_stretch, 1.0f / most_stretch);
      const float gap = float(cuts[k + 1] - cuts[k]);
      const V distance = gap * stretch.exponential;
      between = grade == float(k + 1) ? distance : between;
      at += distance;
      store(rows.output(k + 1, r), gap * stretch.slope);
    }
    const V moved = float(cuts[middle]) - load(rows.output(0, r)) - at_middle;
    const auto has_upper = grade < float(n), has_lower = grade > 0.0f;
    // ln s(t) = min(t, 0) - ln(1 + exp(-|t|)) with t the upper threshold and minus the lower one.
    upper += moved;
    lower = -(lower + moved);
    const V up = exp(-size_of(upper)), down = exp(-size_of(lower));
    const V by_up = 1.0f / (1.0f + up), by_down = 1.0f / (1.0f + down);
    const Exponential inside(-between);
    const V share = -inside.less_one;
    V value = (has_upper ? at_most(upper, 0.0f) + log(by_up) : (V){});
    value += (has_lower ? at_most(lower, 0.0f) + log(by_down) : (V){});
    value += (has_upper & has_lower ? log(share) : (V){});
    total += w * value;
    const V d_upper = has_upper ? w * by_up * (upper > 0.0f ? up : fill(1.0f)) : (V){};
    const V d_lower = has_lower ? -w * by_down * (lower > 0.0f ? down : fill(1.0f)) : (V){};
    const V d_between = w * inside.value / share;
    store(rows.output(0, r), -(d_upper + d_lower));
    for (int k = 0; k + 1 < n; ++k) {
      // Thresholds beyond this distance, as seen from the middle one, move with it.
      const V above = (grade > float(k) ? d_upper : (V){}) + (grade > float(k + 1) ? d_lower : (V){});
      const V below = (grade <= float(k) ? d_upper : (V){}) + (grade <= float(k + 1) ? d_lower : (V){});
      const V own = grade == float(k + 1) ? d_between : (V){};
      float* to = rows.output(k + 1, r);
      store(to, load(to) * ((k >= middle ? above : -below) + own));
    }
  }
  return sum(total);
}

}  // namespace mile::MILE_ISA
