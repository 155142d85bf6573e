// Short vectors of floats and the few functions of them that a network needs. Written with the vector extensions of
// GCC and Clang, so one source serves every instruction set. No function of the standard library is used here: an
// inline one would be compiled for this instruction set and might be linked into code for another.
#pragma once
#include <cstdint>
#include <cstring>

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

// Lane k of the result is the sum of v[k]; v is used up. In each round, neighbors are interleaved and added, so that
// half as many vectors hold partial sums of twice as many.
#define MILE_ADD(a, b, low, high) (MILE_SHUFFLE(a, b, low) + MILE_SHUFFLE(a, b, high))
#define MILE_LIST(...) __VA_ARGS__
MILE_INLINE V sums(V (&v)[lanes]) {
#if MILE_LANES == 4
  for (int k = 0; k < 2; ++k)
    v[k] = MILE_ADD(v[2 * k], v[2 * k + 1], MILE_LIST(0, 4, 1, 5), MILE_LIST(2, 6, 3, 7));
  return MILE_ADD(v[0], v[1], MILE_LIST(0, 1, 4, 5), MILE_LIST(2, 3, 6, 7));
#elif MILE_LANES == 8
  for (int k = 0; k < 4; ++k)
    v[k] = MILE_ADD(v[2 * k], v[2 * k + 1], MILE_LIST(0, 8, 1, 9, 4, 12, 5, 13), MILE_LIST(2, 10, 3, 11, 6, 14, 7, 15));
  for (int k = 0; k < 2; ++k)
    v[k] = MILE_ADD(v[2 * k], v[2 * k + 1], MILE_LIST(0, 1, 8, 9, 4, 5, 12, 13), MILE_LIST(2, 3, 10, 11, 6, 7, 14, 15));
  return MILE_ADD(v[0], v[1], MILE_LIST(0, 1, 2, 3, 8, 9, 10, 11), MILE_LIST(4, 5, 6, 7, 12, 13, 14, 15));
#else
  for (int k = 0; k < 8; ++k)
    v[k] = MILE_ADD(v[2 * k], v[2 * k + 1], MILE_LIST(0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29),
                    MILE_LIST(2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31));
  for (int k = 0; k < 4; ++k)
    v[k] = MILE_ADD(v[2 * k], v[2 * k + 1], MILE_LIST(0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29),
                    MILE_LIST(2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31));
  for (int k = 0; k < 2; ++k)
    v[k] = MILE_ADD(v[2 * k], v[2 * k + 1], MILE_LIST(0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27),
                    MILE_LIST(4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31));
  return MILE_ADD(v[0], v[1], MILE_LIST(0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23),
                  MILE_LIST(8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31));
#endif
}

// Comparisons are written so that NaN passes through.
MILE_INLINE V at_most(V v, float limit) { return v > limit ? fill(limit) : v; }
MILE_INLINE V at_least(V v, float limit) { return v < limit ? fill(limit) : v; }

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
