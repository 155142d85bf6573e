// Vectors of parameters: normal noise from JAX's counter-based generator, the moves of the microcanonical integrator,
// and AdamW. The formulas are those of samplers/_mclmc.py and of optax.
#pragma once
#include "vectors.hpp"

namespace mile::MILE_ISA {

// Vectors worked on side by side where each alone would be one long chain of dependent operations.
constexpr int abreast = 2;

// Threefry-2x32 with 20 rounds on counters (0, low), both words exclusive-ored: JAX's partitionable bits.
MILE_INLINE void random_bits(uint32_t key0, uint32_t key1, U (&words)[abreast]) {
  const uint32_t keys[3] = {key0, key1, key0 ^ key1 ^ 0x1bd11bdau};
  const int rotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  U a[abreast], b[abreast];
  for (int q = 0; q < abreast; ++q) {
    a[q] = (U){} + keys[0];
    b[q] = words[q] + keys[1];
  }
#pragma GCC unroll 5
  for (uint32_t group = 0; group < 5; ++group) {
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      const int by = rotations[group % 2][k];
      for (int q = 0; q < abreast; ++q) {
        a[q] += b[q];
        b[q] = (b[q] << by) | (b[q] >> (32 - by));
        b[q] ^= a[q];
      }
    }
    for (int q = 0; q < abreast; ++q) {
      a[q] += keys[(group + 1) % 3];
      b[q] += keys[(group + 2) % 3] + (group + 1);
    }
  }
  for (int q = 0; q < abreast; ++q) words[q] = a[q] ^ b[q];
}

// Inverse error function in single precision (Giles, "Approximating the erfinv function", 2012).
MILE_INLINE V erf_inverse(V x) {
  V w = -log((1.0f - x) * (1.0f + x));
  V near = w - 2.5f, p = fill(2.81022636e-08f);
  p = p * near + 3.43273939e-07f;
  p = p * near - 3.5233877e-06f;
  p = p * near - 4.39150654e-06f;
  p = p * near + 0.00021858087f;
  p = p * near - 0.00125372503f;
  p = p * near - 0.00417768164f;
  p = p * near + 0.246640727f;
  p = p * near + 1.50140941f;
  V root = w;
  for (int k = 0; k < lanes; ++k) root[k] = __builtin_sqrtf(w[k]);
  V far = root - 3.0f, q = fill(-0.000200214257f);
  q = q * far + 0.000100950558f;
  q = q * far + 0.00134934322f;
  q = q * far - 0.00367342844f;
  q = q * far + 0.00573950773f;
  q = q * far - 0.0076224613f;
  q = q * far + 0.00943887047f;
  q = q * far + 1.00167406f;
  q = q * far + 2.83297682f;
  return (w < 5.0f ? p : q) * x;
}

// Standard normal numbers first, first + 1, ... of the stream of a key; `n` is a multiple of 16. Counters have 32 bits:
// native/_ops.py takes no network of 2^31 parameters or more, and a step uses two numbers for each.
static void normal(uint32_t key0, uint32_t key1, uint32_t first, int64_t n, float* out) {
  U counter = {};
  for (int k = 0; k < lanes; ++k) counter[k] = first + k;
  constexpr float lowest = -0.99999994f;  // the largest float above -1
  for (int64_t k = 0; k < n; k += abreast * lanes) {
    U words[abreast];
    for (int q = 0; q < abreast; ++q, counter += lanes) words[q] = counter;
    random_bits(key0, key1, words);
    for (int q = 0; q < abreast && k + q * lanes < n; ++q) {
      V uniform = (bits<V>((words[q] >> 9) | 0x3f800000u) - 1.0f) * (1.0f - lowest) + lowest;
      store(out + k + q * lanes, erf_inverse(at_least(uniform, lowest)) * 1.41421354f);
    }
  }
}

// Sums run over four vectors side by side, then pairwise: short chains of additions and a fixed order.
template <class F>
MILE_INLINE double reduce(int64_t n, const F& f) {
  V acc[4] = {};
  int64_t k = 0;
  for (; k + 4 * lanes <= n; k += 4 * lanes)
    for (int q = 0; q < 4; ++q) acc[q] += f(k + q * lanes);
  for (int q = 0; k < n; k += lanes, ++q) acc[q] += f(k);
  return sum((acc[0] + acc[1]) + (acc[2] + acc[3]));
}

// All vectors below are padded with zeros to a multiple of the vector's length; n is the padded length.
static void normalize(int64_t n, float* v) {
  const float scale = float(1.0 / __builtin_sqrt(reduce(n, [&](int64_t k) { return load(v + k) * load(v + k); })));
  for (int64_t k = 0; k < n; k += lanes) store(v + k, load(v + k) * scale);
}

static void refresh(int64_t n, int64_t dimension, double step_size, double length, const float* noise,
                    float* velocity) {
  const float scale = float(__builtin_sqrt(__builtin_expm1(step_size / length) / double(dimension)));
  for (int64_t k = 0; k < n; k += lanes) store(velocity + k, load(velocity + k) + scale * load(noise + k));
  normalize(n, velocity);
}

static double kick(int64_t n, int64_t dimension, double duration, const float* gradient, float* velocity) {
  const double norm =
      __builtin_sqrt(reduce(n, [&](int64_t k) { return load(gradient + k) * load(gradient + k); }));
  const double inverse = 1.0 / (norm < 1e-13 ? 1e-13 : norm);
  double cosine = reduce(n, [&](int64_t k) { return load(gradient + k) * load(velocity + k); }) * inverse;
  cosine = cosine > 1.0 ? 1.0 : cosine < -1.0 ? -1.0 : cosine;
  const double delta = duration * norm / double(dimension - 1), zeta = __builtin_exp(-delta);
  const float along = float((1.0 - zeta) * (1.0 + zeta + cosine * (1.0 - zeta)) * inverse), keep = float(2.0 * zeta);
  for (int64_t k = 0; k < n; k += lanes)
    store(velocity + k, along * load(gradient + k) + keep * load(velocity + k));
  normalize(n, velocity);
  const double shrinkage = -0.5 * (1.0 - cosine) * __builtin_expm1(-2.0 * delta);
  const double logarithm =
      shrinkage < 0.5 ? __builtin_log1p(-shrinkage)
                      : __builtin_log(0.5 * ((1.0 + cosine) + (1.0 - cosine) * __builtin_exp(-2.0 * delta)));
  return double(dimension - 1) * (delta + logarithm);
}

static void drift(int64_t n, double distance, const float* velocity, float* position) {
  const float by = float(distance);
  for (int64_t k = 0; k < n; k += lanes) store(position + k, load(position + k) + by * load(velocity + k));
}

static double total(int64_t n, const float* v) {
  return reduce(n, [&](int64_t k) { return load(v + k); });
}

// One step of AdamW on a log likelihood whose gradient is `scale` times too large and points uphill.
static void adamw(int64_t n, const AdamW& rule, int64_t step, float scale, const float* gradient, float* position,
                  float* first, float* second) {
  const float b1 = rule.decay_first, b2 = rule.decay_second;
  const float unbias1 = float(1.0 / (1.0 - __builtin_pow(b1, double(step))));
  const float unbias2 = float(1.0 / (1.0 - __builtin_pow(b2, double(step))));
  for (int64_t k = 0; k < n; k += lanes) {
    V g = -scale * load(gradient + k), p = load(position + k);
    V m = b1 * load(first + k) + (1.0f - b1) * g;
    V v = b2 * load(second + k) + (1.0f - b2) * (g * g);
    V root = v * unbias2;
    for (int q = 0; q < lanes; ++q) root[q] = __builtin_sqrtf(root[q]);
    V update = m * unbias1 / (root + rule.epsilon) + rule.weight_decay * p;
    store(first + k, m);
    store(second + k, v);
    store(position + k, p - rule.learning_rate * update);
  }
}

}  // namespace mile::MILE_ISA
