// Activations of the hidden units: value from the sum, and slope from the value or, where that is impossible, kept beside
// it. NaN gives NaN. All but the cheapest are a pass of their own over the sums: their many constants would push a
// product's sums out of the registers.
#pragma once
#include "tables.hpp"
#include "vectors.hpp"

namespace mile::MILE_ISA {

struct Relu {
  static constexpr bool keeps_slope = false, is_cheap = true;
  static MILE_INLINE V value(V z, V&) { return at_least(z, 0.0f); }
  static MILE_INLINE V times_slope(V d, V h) { return h > 0.0f ? d : (V){}; }
};

struct Tanh {
  static constexpr bool keeps_slope = false, is_cheap = false;
  static constexpr int degree = 5;
  static constexpr double end = 9.0, last = 1.0;
  static constexpr double exact(double u) { return 2.0 * exact_sigmoid(2.0 * u) - 1.0; }

  static MILE_INLINE V value(V z, V&) {
#if MILE_SEGMENTS == 32
    return with_sign(Looked<Tanh>(z).value, z);
#else
    return tanh(z);
#endif
  }
  static MILE_INLINE V times_slope(V d, V h) { return d * (1.0f - h * h); }
};

struct Sigmoid {
  static constexpr bool keeps_slope = false, is_cheap = false;
  static constexpr int degree = 5;
  static constexpr double end = 17.5, last = 0.5;
  static constexpr double exact(double u) { return exact_sigmoid(u) - 0.5; }

  static MILE_INLINE V value(V z, V&) {
#if MILE_SEGMENTS == 32
    return 0.5f + with_sign(Looked<Sigmoid>(z).value, z);
#else
    return sigmoid(z);
#endif
  }
  static MILE_INLINE V times_slope(V d, V h) { return d * (h - h * h); }
};

// The next two are max(z, 0) and a correction, which is the same on both sides of zero and vanishes far out.
#if MILE_SEGMENTS
template <class F>
MILE_INLINE V rectified(V z, V& slope) {
  const Looked<F> correction(z);
  slope = with_sign(correction.slope, z);
  slope = bits<I>(z) >= 0 ? slope + 1.0f : slope;  // by the sign bit, as above: zero has either sign
  return at_least(z, 0.0f) + correction.value;
}
#endif

constexpr float lowest = -1e4f;  // far below where they vanish: times zero, infinity is none

struct Silu {
  static constexpr bool keeps_slope = true, is_cheap = false;
  static constexpr int degree = 5;
  static constexpr double end = 20.0, last = 0.0;
  static constexpr double exact(double u) { return -u * exact_sigmoid(-u); }

  static MILE_INLINE V value(V z, V& slope) {
#if MILE_SEGMENTS == 32
    return rectified<Silu>(z, slope);
#else
    V s = sigmoid(z);
    V h = at_least(z, lowest) * s;
    slope = s + h * (1.0f - s);
    return h;
#endif
  }
  static MILE_INLINE V times_slope(V d, V slope) { return d * slope; }
};

// The tanh form: z * sigmoid(2u) with u = sqrt(2 / pi) (z + 0.044715 z^3).
struct Gelu {
  static constexpr bool keeps_slope = true, is_cheap = false;
  static constexpr int degree = MILE_SEGMENTS == 32 ? 4 : 6;
  static constexpr double end = 5.4, last = 0.0, a = 1.5957691216057308, b = 0.07135481282692908;
  static constexpr double exact(double u) { return -u * exact_sigmoid(-u * (a + b * u * u)); }

  static MILE_INLINE V value(V z, V& slope) {
#if MILE_SEGMENTS
    return rectified<Gelu>(z, slope);
#else
    z = at_least(z, lowest);
    V z2 = z * z;
    V s = sigmoid(z * (float(a) + float(b) * z2));
    V h = z * s;
    slope = s + h * (1.0f - s) * (float(a) + 3.0f * float(b) * z2);
    return h;
#endif
  }
  static MILE_INLINE V times_slope(V d, V slope) { return d * slope; }
};

// Values of n sums, a whole number of vectors, in place; and their slopes, where those are kept.
template <class Act>
__attribute__((noinline)) void activate(int64_t n, float* values, float* slopes) {
  for (int64_t k = 0; k < n; k += lanes) {
    V slope;
    store(values + k, Act::value(load(values + k), slope));
    if constexpr (Act::keeps_slope) store(slopes + k, slope);
  }
}

}  // namespace mile::MILE_ISA
