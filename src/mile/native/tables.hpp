// Functions of one number as piecewise polynomials whose coefficients lie in registers: 16 lanes look 32 segments up in
// one instruction, 8 lanes eight. The tables are made by the compiler. Instruction sets without such a lookup have none.
#pragma once
#include "vectors.hpp"

#if defined(__AVX512F__)
#define MILE_SEGMENTS 32
#elif defined(__AVX2__)
#define MILE_SEGMENTS 8
#else
#define MILE_SEGMENTS 0
#endif

namespace mile::MILE_ISA {

// What the compiler computes with. Arguments are at most about 40.
constexpr double exact_exp(double x) {
  const double small = x / 1024.0;
  double term = 1.0, total = 1.0;
  for (int k = 1; k < 8; ++k) total += term *= small / k;
  for (int k = 0; k < 10; ++k) total *= total;
  return total;
}
constexpr double exact_sigmoid(double x) { return 1.0 / (1.0 + exact_exp(-x)); }

#if MILE_SEGMENTS == 32
MILE_INLINE V look_up(const float* table, I index) {
  return (V)_mm512_permutex2var_ps((__m512)load(table), (__m512i)index, (__m512)load(table + lanes));
}
#elif MILE_SEGMENTS == 8
MILE_INLINE V look_up(const float* table, I index) {
  return (V)_mm256_permutevar8x32_ps((__m256)load(table), (__m256i)index);
}
#endif

#if MILE_SEGMENTS

constexpr int segments = MILE_SEGMENTS;

// Chebyshev's nodes of degree 0 to 6 on [-1, 1]; of each pair one.
constexpr double nodes[7][4] = {{0.0},
                                {0.7071067811865476},
                                {0.8660254037844387, 0.0},
                                {0.9238795325112867, 0.3826834323650898},
                                {0.9510565162951535, 0.5877852522924731, 0.0},
                                {0.9659258262890683, 0.7071067811865476, 0.2588190451025207},
                                {0.9749279121818236, 0.7818314824680298, 0.4338837391175581, 0.0}};

// A function F::exact on [0, F::end] as polynomials in t, the distance to the nearest of `segments` points that lie
// `width` apart. At the first, 0, the value is exact; at the last it is F::last and the slope zero, as for all beyond.
template <class F>
struct Table {
  static constexpr int degree = F::degree;
  // So few bits that a whole number of widths is exact.
  static constexpr float width = float(int(F::end / (segments - 1) * 4096.0)) / 4096.0f, end = width * (segments - 1);
  alignas(64) float coefficients[degree + 1][segments];

  constexpr Table() : coefficients{} {
    for (int k = 0; k < segments; ++k) fit(k, k == 0 ? 1 : k == segments - 1 ? 2 : 0);
  }

 private:
  // Interpolate at the nodes. The first `given` coefficients are those of the function itself: the others are a
  // polynomial for what is left, over t to the power of `given`.
  constexpr void fit(int segment, int given) {
    const double center = double(width) * segment, from = segment == 0 ? 0.0 : -0.5 * width,
                 to = segment == segments - 1 ? 0.0 : 0.5 * width;
    const int n = degree + 1 - given;
    double t[degree + 1] = {}, newton[degree + 1] = {}, found[degree + 1] = {};
    for (int k = 0; k < n; ++k) {
      const double node = k < (n + 1) / 2 ? -nodes[n - 1][k] : nodes[n - 1][n - 1 - k];
      t[k] = 0.5 * (from + to) + 0.5 * (to - from) * node;
      newton[k] = F::exact(center + t[k]);
      if (given > 0) newton[k] = (newton[k] - F::exact(center)) / t[k];
      if (given > 1) newton[k] /= t[k];
    }
    for (int order = 1; order < n; ++order)
      for (int k = n - 1; k >= order; --k) newton[k] = (newton[k] - newton[k - 1]) / (t[k] - t[k - order]);
    for (int k = n - 1; k >= 0; --k) {  // found = found * (t - t[k]) + newton[k]
      for (int power = n - 1; power > 0; --power) found[power] = found[power - 1] - t[k] * found[power];
      found[0] = newton[k] - t[k] * found[0];
    }
    for (int power = 0; power < n; ++power) coefficients[power + given][segment] = float(found[power]);
    if (given > 0) coefficients[0][segment] = float(given == 1 ? F::exact(0.0) : F::last);
  }
};

// What a table says at |z|: value and slope.
template <class F>
struct Looked {
  V value, slope;

  MILE_INLINE explicit Looked(V z) {
    static constexpr Table<F> table;
    constexpr float round = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
    const V u = at_most(bits<V>(bits<I>(z) & 0x7fffffff), table.end);
    const V shifted = u * (1.0f / table.width) + round;
    const V t = u - (shifted - round) * table.width;
    const I segment = bits<I>(shifted);
    constexpr int degree = F::degree;
    slope = look_up(table.coefficients[degree], segment);
    value = slope * t + look_up(table.coefficients[degree - 1], segment);
#pragma GCC unroll 6
    for (int k = degree - 2; k >= 0; --k) {
      slope = slope * t + value;
      value = value * t + look_up(table.coefficients[k], segment);
    }
  }
};

// v, with its sign changed where z is negative.
MILE_INLINE V with_sign(V v, V z) { return bits<V>(bits<I>(v) ^ (bits<I>(z) & int32_t(0x80000000))); }

#endif

}  // namespace mile::MILE_ISA
