// The four products of a perceptron on one tile of rows. Hidden features lie in strips of one vector of columns,
// [strip][row of the tile][lane], so that rows are a constant distance apart. Each product holds a block of results in
// registers: a vector of columns times a number broadcast from memory, so that every operand is read where it lies and
// nothing is transposed. With `by_feature` the broadcast side lies [feature][tile] instead, as inputs and the derivatives
// of the outputs do.
#pragma once
#include "activations.hpp"
#include "kernel.hpp"
#include "vectors.hpp"

namespace mile::MILE_ISA {

// Registers: at most `panel` vectors of columns side by side, and so many rows that about 12 (of 16) or 24 (of 32)
// accumulators cover the latency of a fused multiply-add.
#if MILE_LANES == 16
constexpr int panel = 2;
constexpr int block(int) { return 12; }
#elif MILE_LANES == 8
constexpr int panel = 2;
constexpr int block(int vectors) { return vectors == 2 ? 6 : 12; }
#elif defined(__aarch64__)
constexpr int panel = 4;
constexpr int block(int vectors) { return vectors == 1 ? 12 : 6; }
#else
constexpr int panel = 2;
constexpr int block(int vectors) { return vectors == 2 ? 6 : 12; }
#endif
constexpr int row_multiple = 12;  // of every block above
// Inputs of a block of weight gradients, all from one strip: at most so many sums and a bias fit into the registers.
constexpr int strip_block(int vectors) {
  const int most = block(vectors) + (lanes == 16 && vectors == 1 ? 4 : 0);
  return most >= lanes ? lanes : most >= lanes / 2 ? lanes / 2 : lanes / 4;
}

// acc[r][v] += sum_k in(r, k) * w[k][v]; without `by_feature` within one strip.
template <int R, int N, bool by_feature>
MILE_INLINE void multiply(V (&acc)[R][N], const float* in, int64_t ld_in, const float* w, int64_t ld_w,
                          int64_t depth) {
  const int64_t next_row = by_feature ? 1 : lanes, next = by_feature ? ld_in : 1;
  for (int64_t k = 0; k < depth; ++k, w += ld_w, in += next) {
    V column[N];
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) column[v] = load(w + v * lanes);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      V number = fill(in[r * next_row]);
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) acc[r][v] += number * column[v];
    }
  }
}

// The same over all strips, or features, which are `next_in` apart.
template <int R, int N, bool by_feature>
MILE_INLINE void multiply_all(V (&acc)[R][N], const float* in, int64_t next_in, const float* w, int64_t ld_w,
                              int64_t depth) {
  if constexpr (by_feature) {
    multiply<R, N, true>(acc, in, next_in, w, ld_w, depth);
  } else {
    int64_t k = 0;
    for (; k + lanes <= depth; k += lanes, in += next_in) multiply<R, N, false>(acc, in, 0, w + k * ld_w, ld_w, lanes);
    multiply<R, N, false>(acc, in, 0, w + k * ld_w, ld_w, depth - k);
  }
}

// Values of a layer; of an activation that is a pass of its own, the sums.
template <class Act, int N, bool by_feature>
MILE_INLINE void forward_block(const float* in, int64_t next_in, const float* w, const float* bias, int64_t depth,
                               float* out, int64_t strip) {
  constexpr int R = block(N);
  V acc[R][N];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < N; ++v) acc[r][v] = load(bias + v * lanes);
  multiply_all<R, N, by_feature>(acc, in, next_in, w, N * lanes, depth);
  for (int v = 0; v < N; ++v)
    for (int r = 0; r < R; ++r) {
      V none;
      store(out + v * strip + r * lanes, Act::is_cheap ? Act::value(acc[r][v], none) : acc[r][v]);
    }
}

// The derivative with respect to a layer's sums, written over its values.
template <class Act, int N, bool by_feature>
MILE_INLINE void backward_block(const float* d, int64_t next_d, const float* w, int64_t ld_w, int64_t depth,
                                float* hidden, const float* slopes, int64_t strip) {
  constexpr int R = block(N);
  V acc[R][N] = {};
  multiply_all<R, N, by_feature>(acc, d, next_d, w, ld_w, depth);
  for (int v = 0; v < N; ++v)
    for (int r = 0; r < R; ++r) {
      const int64_t at = v * strip + r * lanes;
      store(hidden + at, Act::times_slope(acc[r][v], load((Act::keeps_slope ? slopes : hidden) + at)));
    }
}

// gradient[k][v] += sum_r in(r, k) * d[r][v] for B inputs; with `with_bias` one more row, the sum of d.
// S partial sums side by side where the block alone would wait for its own additions.
constexpr int partial_sums(int n) { return n >= 8 ? 1 : n >= 4 ? 2 : 4; }
template <int B, int N, bool by_feature, bool with_bias>
MILE_INLINE void gradient_block(const float* in, int64_t ld_in, const float* d, int64_t strip, int rows,
                                float* gradient, float* bias) {
  constexpr int S = partial_sums((B + with_bias) * N);
  constexpr int64_t ld_gradient = N * lanes;
  const int64_t next_row = by_feature ? 1 : lanes, next = by_feature ? ld_in : 1;
  V acc[S][B][N] = {}, ones[S][N] = {};
  for (int r = 0; r < rows; r += S) {
#pragma GCC unroll 4
    for (int s = 0; s < S; ++s) {
      V dv[N];
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) dv[v] = load(d + v * strip + (r + s) * lanes);
#pragma GCC unroll 16
      for (int k = 0; k < B; ++k) {
        V number = fill(in[(r + s) * next_row + k * next]);
#pragma GCC unroll 4
        for (int v = 0; v < N; ++v) acc[s][k][v] += number * dv[v];
      }
      if constexpr (with_bias)
        for (int v = 0; v < N; ++v) ones[s][v] += dv[v];
    }
  }
  for (int s = 1; s < S; ++s) {
    for (int k = 0; k < B; ++k)
      for (int v = 0; v < N; ++v) acc[0][k][v] += acc[s][k][v];
    for (int v = 0; v < N; ++v) ones[0][v] += ones[s][v];
  }
  for (int k = 0; k < B; ++k)
    for (int v = 0; v < N; ++v) {
      float* at = gradient + k * ld_gradient + v * lanes;
      store(at, load(at) + acc[0][k][v]);
    }
  if constexpr (with_bias)
    for (int v = 0; v < N; ++v) store(bias + v * lanes, load(bias + v * lanes) + ones[0][v]);
}

template <int B, int N, bool by_feature>
void gradient_rows(int n, bool with_bias, const float* in, int64_t ld_in, const float* d, int64_t strip, int rows,
                   float* gradient, float* bias) {
  if constexpr (B > 0) {
    if (n < B) return gradient_rows<B - 1, N, by_feature>(n, with_bias, in, ld_in, d, strip, rows, gradient, bias);
    if (with_bias)
      gradient_block<B, N, by_feature, true>(in, ld_in, d, strip, rows, gradient, bias);
    else
      gradient_block<B, N, by_feature, false>(in, ld_in, d, strip, rows, gradient, bias);
  }
}

template <int N>
struct Vectors {
  static constexpr int value = N;
};

// Call f(Vectors<N>, first column) for each panel of N vectors of columns.
template <int N = panel, class F>
MILE_INLINE void each_panel(int64_t columns, const F& f, int64_t from = 0) {
  int64_t c = from;
  for (; c + N * lanes <= columns; c += N * lanes) f(Vectors<N>{}, c);
  if constexpr (N > 1) each_panel<N - 1>(columns, f, c);
}

}  // namespace mile::MILE_ISA
