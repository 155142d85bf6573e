// Short vectors of floats and the few functions of them that a network needs. Written with the vector extensions of
// GCC and Clang, so one source serves every instruction set. No function of the standard library is used here: an
// inline one would be compiled for this instruction set and might be linked into code for another.
// Intrinsics, which are always inlined, stand only where a compiler does not find the instruction by itself.
#pragma once
#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define MILE_INLINE inline __attribute__((always_inline))

namespace mile::MILE_ISA {

constexpr int lanes = MILE_LANES;
typedef float V __attribute__((vector_size(4 * lanes)));
typedef int32_t I __attribute__((vector_size(4 * lanes)));
typedef uint32_t U __attribute__((vector_size(4 * lanes)));

MILE_INLINE V load(const float* p) {
  V v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
MILE_INLINE void store(float* p, V v) { std::memcpy(p, &v, sizeof v); }
MILE_INLINE V fill(float s) { return s - (V){}; }  // minus: adding zero would change the sign of -0, so it is not free
template <class To, class From>
MILE_INLINE To bits(From v) {
  To r;
  std::memcpy(&r, &v, sizeof r);
  return r;
}

MILE_INLINE float sum(V v) {
  // A fixed tree: halves, quarters, ...
  float s[lanes];
  std::memcpy(s, &v, sizeof v);
  for (int width = lanes / 2; width > 0; width /= 2)
    for (int k = 0; k < width; ++k) s[k] += s[k + width];
  return s[0];
}

// r[k] = a, b concatenated, at k...
#if defined(__clang__)
#define MILE_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define MILE_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (I){__VA_ARGS__})
#endif

// Lanes of b where the bit of the mask is set, else of a.
template <unsigned mask>
MILE_INLINE V blend(V a, V b) {
#if defined(__AVX512F__)
  return (V)_mm512_mask_blend_ps(mask, (__m512)a, (__m512)b);
#elif defined(__AVX2__)
  return (V)_mm256_blend_ps((__m256)a, (__m256)b, mask & 255);
#else
  I chosen;
  for (int k = 0; k < lanes; ++k) chosen[k] = mask >> k & 1 ? -1 : 0;
  return chosen ? b : a;
#endif
}

// Lane k of the result is the sum of v[k]; v is used up. In each round two vectors become one: of each, half of the lanes
// stay where they are and the others move beside them, so that only one of the two summands needs a shuffle.
#define MILE_ADD(mask, a, b, ...) (blend<mask>(a, b) + MILE_SHUFFLE(a, b, __VA_ARGS__))
#if MILE_LANES == 4
#define MILE_PAIRS 2, 3, 4, 5
#define MILE_NEIGHBORS 1, 4, 3, 6
#elif MILE_LANES == 8
#define MILE_PAIRS 2, 3, 8, 9, 6, 7, 12, 13
#define MILE_NEIGHBORS 1, 8, 3, 10, 5, 12, 7, 14
#else
#define MILE_PAIRS 2, 3, 16, 17, 6, 7, 20, 21, 10, 11, 24, 25, 14, 15, 28, 29
#define MILE_NEIGHBORS 1, 16, 3, 18, 5, 20, 7, 22, 9, 24, 11, 26, 13, 28, 15, 30
#endif
MILE_INLINE V sums(V (&v)[lanes]) {
  for (int k = 0; k < lanes; k += 4) {
    const V even = MILE_ADD(0xcccc, v[k], v[k + 2], MILE_PAIRS), odd = MILE_ADD(0xcccc, v[k + 1], v[k + 3], MILE_PAIRS);
    v[k / 4] = MILE_ADD(0xaaaa, even, odd, MILE_NEIGHBORS);
  }
#if MILE_LANES == 4
  return v[0];
#elif MILE_LANES == 8
  return MILE_ADD(0xf0, v[0], v[1], 4, 5, 6, 7, 8, 9, 10, 11);
#else
  for (int k = 0; k < 2; ++k)
    v[k] = MILE_ADD(0xf0f0, v[2 * k], v[2 * k + 1], 4, 5, 6, 7, 16, 17, 18, 19, 12, 13, 14, 15, 24, 25, 26, 27);
  return MILE_ADD(0xff00, v[0], v[1], 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23);
#endif
}

// Lane k of v[i] becomes lane i of v[k]. In each round blocks of `step` lanes change places between two vectors.
template <int step, int... k>
MILE_INLINE void exchange(V& a, V& b, std::integer_sequence<int, k...>) {
  const V low = MILE_SHUFFLE(a, b, (k & step ? lanes + k - step : k)...);
  b = MILE_SHUFFLE(a, b, (k & step ? lanes + k : k + step)...);
  a = low;
}
template <int step = lanes / 2>
MILE_INLINE void transpose(V (&v)[lanes]) {
#pragma GCC unroll 16
  for (int i = 0; i < lanes; ++i)
    if (!(i & step)) exchange<step>(v[i], v[i + step], std::make_integer_sequence<int, lanes>{});
  if constexpr (step > 1) transpose<step / 2>(v);
}

// NaN passes through: where one of two is NaN, the instructions return the second.
#if defined(__AVX512F__)
MILE_INLINE V at_most(V v, float limit) { return (V)_mm512_min_ps((__m512)fill(limit), (__m512)v); }
MILE_INLINE V at_least(V v, float limit) { return (V)_mm512_max_ps((__m512)fill(limit), (__m512)v); }
#elif defined(__AVX2__)
MILE_INLINE V at_most(V v, float limit) { return (V)_mm256_min_ps((__m256)fill(limit), (__m256)v); }
MILE_INLINE V at_least(V v, float limit) { return (V)_mm256_max_ps((__m256)fill(limit), (__m256)v); }
#else
MILE_INLINE V at_most(V v, float limit) { return v > limit ? fill(limit) : v; }
MILE_INLINE V at_least(V v, float limit) { return v < limit ? fill(limit) : v; }
#endif

// exp to about 1 ulp; the argument is clamped so that the result is a normal number.
MILE_INLINE V exp(V x) {
  x = at_least(at_most(x, 88.0f), -87.0f);
  const float round = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  V shifted = x * 1.44269504088896341f + round;
  V n = shifted - round;
  V f = x - n * 0.693359375f + n * 2.12194440e-4f;
  V p = fill(1.9875691500e-4f);
  p = p * f + 1.3981999507e-3f;
  p = p * f + 8.3334519073e-3f;
  p = p * f + 4.1665795894e-2f;
  p = p * f + 1.6666665459e-1f;
  p = p * f + 5.0000001201e-1f;
  p = p * (f * f) + f + 1.0f;
  I exponent = (bits<I>(shifted) << 23) + (127 << 23);
  return p * bits<V>(exponent);
}

// log of a positive normal number to about 1 ulp; infinity and NaN pass through, zero gives about -87.
MILE_INLINE V log(V x) {
  I whole = bits<I>(x);
  I e = ((whole - 0x3f3504f3) >> 23);  // so that the mantissa lies in [sqrt(1/2), sqrt(2))
  V m = bits<V>(whole - (e << 23)) - 1.0f;
  V n = __builtin_convertvector(e, V);
  V p = fill(7.0376836292e-2f);
  p = p * m - 1.1514610310e-1f;
  p = p * m + 1.1676998740e-1f;
  p = p * m - 1.2420140846e-1f;
  p = p * m + 1.4249322787e-1f;
  p = p * m - 1.6668057665e-1f;
  p = p * m + 2.0000714765e-1f;
  p = p * m - 2.4999993993e-1f;
  p = p * m + 3.3333331174e-1f;
  V z = m * m;
  V r = m * z * p - n * 2.12194440e-4f - 0.5f * z + m + n * 0.693359375f;
  return (bits<I>(x) & 0x7fffffff) >= 0x7f800000 ? x : r;
}

MILE_INLINE V sigmoid(V x) { return 1.0f / (1.0f + exp(-x)); }

MILE_INLINE V tanh(V x) {
  V z = x * x;
  V p = fill(-5.70498872745e-3f);
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  V small = p * z * x + x;
  V large = 1.0f - 2.0f / (exp(2.0f * x) + 1.0f);
  return z < 0.390625f ? small : large;
}

}  // namespace mile::MILE_ISA
