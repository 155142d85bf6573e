// The normal distribution in double precision, for quantiles of mixtures.
#pragma once
#include "vectors.hpp"

namespace mile::MILE_ISA {

typedef double D __attribute__((vector_size(4 * lanes)));
typedef int64_t L __attribute__((vector_size(4 * lanes)));
constexpr int doubles = lanes / 2;

// exp of a number in [-708, 0].
MILE_INLINE D exp(D x) {
  const double round = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer in the low bits
  D shifted = x * 1.4426950408889634 + round;
  D n = shifted - round;
  D f = x - n * 0.693147180369123816490 - n * 1.90821492927058770002e-10;
  D p = f * (1.0 / 479001600.0) + 1.0 / 39916800.0;
  const double rest[] = {1.0 / 3628800.0, 1.0 / 362880.0, 1.0 / 40320.0, 1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0,
                         1.0 / 24.0,      1.0 / 6.0,      0.5,           1.0,          1.0};
  for (double coefficient : rest) p = p * f + coefficient;
  L exponent = (bits<L>(shifted) << 52) + (1023ll << 52);
  return p * bits<D>(exponent);
}

// exp(u^2) erfc(u) (1 + 2 u) for u >= 0 as a polynomial in (u - 3.75) / (u + 3.75), to 4e-15: interpolated at 21
// Chebyshev nodes.
MILE_INLINE D scaled_erfc(D u) {
  const double coefficients[] = {
    1.7312209083118933e-08, 8.5125594517613314e-09, -2.1321360409864602e-07,
    -2.7685663849700945e-08, 1.6939254478276176e-06, -1.0084713725546233e-06,
    -1.1397625287921655e-05, 2.241015775977701e-05, 5.1624792009427781e-05,
    -0.00029016639136143893, 0.00029372183419192641, 0.0017556295487634313,
    -0.0097465812624944557, 0.02836227674782648, -0.058693398383975408,
    0.092304321227711553, -0.10880393015433062, 0.082276738487040452,
    0.0035854154857627857, -0.14024059858550575, 1.2375126308378264};
  D s = (u - 3.75) / (u + 3.75), p = (D){} + coefficients[0];
  for (int k = 1; k < 21; ++k) p = p * s + coefficients[k];
  return p / (1.0 + 2.0 * u);
}

// Sums over components of the distribution function and of the density at y, each times its weight, if they have any.
template <bool is_weighted>
MILE_INLINE void add_up(int64_t n, const double* location, const double* precision, const double* weight, double y,
                        double* cdf, double* density) {
  D below = {}, height = {};
  double rest_below = 0.0, rest_height = 0.0;
  auto one = [y](D at, D inverse, D& tail, D& peak) {
    D z = (y - at) * inverse, size = z < 0.0 ? -z : z;
    D half_square = -0.5 * z * z;
    D e = exp(half_square < -708.0 ? (D){} - 708.0 : half_square);
    D upper = 0.5 * e * scaled_erfc(size * 0.70710678118654752);
    tail = z < 0.0 ? upper : 1.0 - upper;
    peak = e * inverse;
  };
  int64_t k = 0;
  for (; k + doubles <= n; k += doubles) {
    D at, inverse, tail, peak;
    std::memcpy(&at, location + k, sizeof at);
    std::memcpy(&inverse, precision + k, sizeof inverse);
    one(at, inverse, tail, peak);
    if constexpr (is_weighted) {
      D share;
      std::memcpy(&share, weight + k, sizeof share);
      below += share * tail;
      height += share * peak;
    } else {
      below += tail;
      height += peak;
    }
  }
  for (; k < n; ++k) {
    D tail, peak;
    one((D){} + location[k], (D){} + precision[k], tail, peak);
    if constexpr (is_weighted) {
      rest_below += weight[k] * tail[0];
      rest_height += weight[k] * peak[0];
    } else {
      rest_below += tail[0];
      rest_height += peak[0];
    }
  }
  for (int q = 0; q < doubles; ++q) {
    rest_below += below[q];
    rest_height += height[q];
  }
  *cdf = rest_below;
  *density = rest_height * 0.39894228040143268;
}

// Mean over components of the distribution function and of the density at y.
static void mixture(int64_t n, const double* location, const double* precision, double y, double* cdf,
                    double* density) {
  add_up<false>(n, location, precision, nullptr, y, cdf, density);
  *cdf /= double(n);
  *density /= double(n);
}

// The same where each component has a weight, which add up to one.
static void weighted_mixture(int64_t n, const double* location, const double* precision, const double* weight, double y,
                             double* cdf, double* density) {
  add_up<true>(n, location, precision, weight, y, cdf, density);
}

}  // namespace mile::MILE_ISA
