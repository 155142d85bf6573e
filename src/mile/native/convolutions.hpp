// Convolutions on one tile of images. Numbers lie [feature][tile], features in the order height, width, channel, so a
// vector holds one feature of several images: every product is a vector of images times a weight broadcast from
// memory, and neither patches nor transposed images are ever made. Inputs have their border of zeros around them.
#pragma once
#include "kernel.hpp"
#include "layers.hpp"
#include "vectors.hpp"

namespace mile::MILE_ISA {

constexpr int image_tile = 48;   // images of a tile: whole vectors for all instruction sets
constexpr int most_vectors = 3;  // of images, worked on side by side
#if MILE_LANES == 16
constexpr int most_filters = 8;  // with the vectors above 24 of 32 registers hold sums
#else
constexpr int most_filters = 4;  // 12 of 16
#endif
constexpr int most_sums = most_vectors * most_filters;  // of a block of weight gradients

// One convolution and where it lies in scratch memory, in floats.
struct Stage {
  int64_t height, width, channels;  // of its input, without the border
  int64_t filters, kernel, padding, pool;
  int64_t out_height, out_width;        // before pooling
  int64_t pooled_height, pooled_width;  // after
  int64_t position;                     // in the vector of parameters
  int64_t weights;                      // [row][column][channel][filter], then the bias: as in the vector of parameters
  int64_t transposed;                   // [row][column, last first][filter][channel]
  int64_t gradient;                     // as the weights
  int64_t input;                        // with its border; overwritten by derivatives
  int64_t convolved, slopes;            // [height][width][filter]; overwritten by derivatives

  int64_t run() const { return kernel * channels; }  // features of one row of a filter: they are neighbors
  int64_t n_weights() const { return kernel * run() * filters; }
  int64_t padded_width() const { return width + 2 * padding; }
  int64_t padded_size() const { return (height + 2 * padding) * padded_width() * channels; }
  int64_t convolved_size() const { return out_height * out_width * filters; }
  // Feature of the input at a pixel, counted without the border.
  int64_t pixel(int64_t y, int64_t x) const { return ((y + padding) * padded_width() + x + padding) * channels; }
};

// Call f(Vectors<N>, first image) for groups of at most `most_vectors` vectors of images.
template <int N = most_vectors, class F>
MILE_INLINE void each_group(int images, const F& f, int from = 0) {
  int r = from;
  for (; r + N * lanes <= images; r += N * lanes) f(Vectors<N>{}, r);
  if constexpr (N > 1)
    if (r < images) each_group<N - 1>(images, f, r);
}

// Call f(Vectors<B>, first) for blocks of nearly equal size, at most `most`.
template <int B, class F>
MILE_INLINE void one_block(int size, const F& f, int64_t first) {
  if constexpr (B > 0) {
    if (size == B) return f(Vectors<B>{}, first);
    one_block<B - 1>(size, f, first);
  }
}
template <int most, class F>
MILE_INLINE void each_block(int64_t n, const F& f) {
  const int64_t blocks = (n + most - 1) / most;
  for (int64_t b = 0, first = 0; b < blocks; ++b) {
    const int64_t stop = (b + 1) * n / blocks;
    one_block<most>(int(stop - first), f, first);
    first = stop;
  }
}

// acc[o][v] += sum_k w(k, o) * in[k][v]
template <int O, int N>
MILE_INLINE void add_run(V (&acc)[O][N], const float* in, const float* w, int64_t next, int64_t next_out, int64_t n) {
  for (int64_t k = 0; k < n; ++k, in += image_tile, w += next) {
    V images[N];
#pragma GCC unroll 3
    for (int v = 0; v < N; ++v) images[v] = load(in + v * lanes);
#pragma GCC unroll 8
    for (int o = 0; o < O; ++o) {
      V weight = fill(w[o * next_out]);
#pragma GCC unroll 3
      for (int v = 0; v < N; ++v) acc[o][v] += weight * images[v];
    }
  }
}

template <int O, int N>
MILE_INLINE void store_block(const V (&acc)[O][N], float* out) {
  for (int o = 0; o < O; ++o)
    for (int v = 0; v < N; ++v) store(out + o * image_tile + v * lanes, acc[o][v]);
}

// Sums of one pixel: filters [first, first + O) of the images from r on.
template <int O, int N>
void convolve_block(const Stage& stage, const float* in, const float* w, const float* bias, float* out) {
  V acc[O][N];
  for (int o = 0; o < O; ++o)
    for (int v = 0; v < N; ++v) acc[o][v] = fill(bias[o]);
  const int64_t next_row = stage.padded_width() * stage.channels * image_tile;
  for (int64_t ky = 0; ky < stage.kernel; ++ky)
    add_run(acc, in + ky * next_row, w + ky * stage.run() * stage.filters, stage.filters, 1, stage.run());
  store_block(acc, out);
}

template <class Act>
static void convolve(const Stage& stage, int images, float* s) {
  const float *w = s + stage.weights, *bias = w + stage.n_weights();
  for (int64_t y = 0; y < stage.out_height; ++y)
    for (int64_t x = 0; x < stage.out_width; ++x) {
      const float* in = s + stage.input + (y * stage.padded_width() + x) * stage.channels * image_tile;
      const int64_t at = (y * stage.out_width + x) * stage.filters * image_tile;
      float* out = s + stage.convolved + at;
      each_block<most_filters>(stage.filters, [&](auto filters, int64_t o) {
        each_group(images, [&](auto vectors, int r) {
          convolve_block<decltype(filters)::value, decltype(vectors)::value>(stage, in + r, w + o, bias + o,
                                                                             out + o * image_tile + r);
        });
      });
      // Filters are neighbors: of whole tiles one run.
      const int64_t runs = images == image_tile ? 1 : stage.filters, run = stage.filters / runs * images;
      for (int64_t k = 0; k < runs; ++k)
        activate<Act>(run, out + k * image_tile, s + stage.slopes + at + k * image_tile);
    }
}

// Means over squares, written to the input of the next stage, or of the dense layers: `to(y, x)` is where a pixel goes.
template <class F>
MILE_INLINE void pool(const Stage& stage, int images, const float* s, const F& to) {
  const float scale = 1.0f / float(stage.pool * stage.pool);
  for (int64_t y = 0; y < stage.pooled_height; ++y)
    for (int64_t x = 0; x < stage.pooled_width; ++x) {
      float* out = to(y, x);
      for (int64_t o = 0; o < stage.filters; ++o)
        for (int r = 0; r < images; r += lanes) {
          V total = {};
          for (int64_t dy = 0; dy < stage.pool; ++dy)
            for (int64_t dx = 0; dx < stage.pool; ++dx) {
              const int64_t at = ((y * stage.pool + dy) * stage.out_width + x * stage.pool + dx) * stage.filters;
              total += load(s + stage.convolved + (at + o) * image_tile + r);
            }
          store(out + o * image_tile + r, total * scale);
        }
    }
}

// Derivatives with respect to the sums of a convolution, written over its values; `from(y, x)` is where those with
// respect to a pixel of its result are.
template <class Act, class F>
MILE_INLINE void unpool(const Stage& stage, int images, float* s, const F& from) {
  const float scale = 1.0f / float(stage.pool * stage.pool);
  for (int64_t y = 0; y < stage.out_height; ++y)
    for (int64_t x = 0; x < stage.out_width; ++x) {
      const int64_t py = y / stage.pool, px = x / stage.pool;
      const float* d = py < stage.pooled_height && px < stage.pooled_width ? from(py, px) : nullptr;
      for (int64_t o = 0; o < stage.filters; ++o)
        for (int r = 0; r < images; r += lanes) {
          const int64_t at = ((y * stage.out_width + x) * stage.filters + o) * image_tile + r;
          float* values = s + stage.convolved + at;
          const V slope = load(Act::keeps_slope ? s + stage.slopes + at : values);
          store(values, d ? Act::times_slope(load(d + o * image_tile + r) * scale, slope) : (V){});
        }
    }
}

// Add up n vectors, each over its lanes.
MILE_INLINE void add_lanes(V* acc, int n, float* out) {
  for (int first = 0; first < n; first += lanes) {
    V group[lanes];
    for (int k = 0; k < lanes; ++k) group[k] = first + k < n ? acc[first + k] : (V){};
    store(out + first, sums(group));
  }
}

// Gradient of K neighboring weights of a row of O filters: products of inputs and derivatives, over all pixels.
template <int K, int O>
void weights_block(const Stage& stage, const float* in, const float* d, int images, float* gradient) {
  V acc[K * O] = {};
  for (int64_t y = 0; y < stage.out_height; ++y) {
    const float* pixel = in + y * stage.padded_width() * stage.channels * image_tile;
    const float* derivative = d + y * stage.out_width * stage.filters * image_tile;
    for (int64_t x = 0; x < stage.out_width;
         ++x, pixel += stage.channels * image_tile, derivative += stage.filters * image_tile)
      for (int r = 0; r < images; r += lanes) {
        V values[O];
#pragma GCC unroll 8
        for (int o = 0; o < O; ++o) values[o] = load(derivative + o * image_tile + r);
#pragma GCC unroll 8
        for (int k = 0; k < K; ++k) {
          V number = load(pixel + k * image_tile + r);
#pragma GCC unroll 8
          for (int o = 0; o < O; ++o) acc[k * O + o] += number * values[o];
        }
      }
  }
  float total[(K * O + lanes - 1) / lanes * lanes];
  add_lanes(acc, K * O, total);
  for (int k = 0; k < K; ++k)
    for (int o = 0; o < O; ++o) gradient[k * stage.filters + o] += total[k * O + o];
}

static void weight_gradients(const Stage& stage, int images, float* s) {
  const float* d = s + stage.convolved;
  const int64_t next_row = stage.padded_width() * stage.channels * image_tile;
  for (int64_t ky = 0; ky < stage.kernel; ++ky) {
    const float* in = s + stage.input + ky * next_row;
    float* gradient = s + stage.gradient + ky * stage.run() * stage.filters;
    each_block<most_filters>(stage.filters, [&](auto filters, int64_t o) {
      constexpr int O = decltype(filters)::value, K = most_sums / O < 8 ? most_sums / O : 8;
      each_block<K>(stage.run(), [&](auto neighbors, int64_t k) {
        weights_block<decltype(neighbors)::value, O>(stage, in + k * image_tile, d + o * image_tile, images,
                                                     gradient + k * stage.filters + o);
      });
    });
  }
  float* bias = s + stage.gradient + stage.n_weights();
  for (int64_t o = 0; o < stage.filters; ++o) {
    V total = {};
    for (int64_t f = o; f < stage.convolved_size(); f += stage.filters)
      for (int r = 0; r < images; r += lanes) total += load(d + f * image_tile + r);
    bias[o] += sum(total);
  }
}

// Derivatives with respect to a pixel of the input, channels [c, c + C): all filters that have seen it.
template <int C, int N>
void input_block(const Stage& stage, int64_t y, int64_t x, const float* d, const float* w, float* out) {
  V acc[C][N] = {};
  const int64_t last = x + stage.padding;  // column of the result whose filter begins here
  const int64_t from = last - stage.kernel + 1 > 0 ? last - stage.kernel + 1 : 0;
  const int64_t to = last < stage.out_width - 1 ? last : stage.out_width - 1;
  const int64_t skipped = from - (last - stage.kernel + 1);
  for (int64_t ky = 0; ky < stage.kernel && from <= to; ++ky) {
    const int64_t row = y + stage.padding - ky;
    if (row < 0 || row >= stage.out_height) continue;
    add_run(acc, d + (row * stage.out_width + from) * stage.filters * image_tile,
            w + (ky * stage.kernel + skipped) * stage.filters * stage.channels, stage.channels, 1,
            (to - from + 1) * stage.filters);
  }
  store_block(acc, out);
}

static void input_derivatives(const Stage& stage, int images, float* s) {
  for (int64_t y = 0; y < stage.height; ++y)
    for (int64_t x = 0; x < stage.width; ++x) {
      float* out = s + stage.input + stage.pixel(y, x) * image_tile;
      each_block<most_filters>(stage.channels, [&](auto channels, int64_t c) {
        each_group(images, [&](auto vectors, int r) {
          input_block<decltype(channels)::value, decltype(vectors)::value>(
              stage, y, x, s + stage.convolved + r, s + stage.transposed + c, out + c * image_tile + r);
        });
      });
    }
}

// Derivatives with respect to the inputs of a dense layer, w [in][out] and d [out][tile].
static void dense_derivatives(int64_t in, int64_t out, const float* w, const float* d, int images, float* to) {
  each_block<most_filters>(in, [&](auto features, int64_t f) {
    each_group(images, [&](auto vectors, int r) {
      constexpr int F = decltype(features)::value, N = decltype(vectors)::value;
      V acc[F][N] = {};
      add_run(acc, d + r, w + f * out, 1, out, out);
      store_block(acc, to + f * image_tile + r);
    });
  });
}

// Copy the weights of a convolution from the vector of parameters.
static void load_stage(const Stage& stage, const float* position, bool transposed, float* s) {
  const float* w = position + stage.position;
  std::memcpy(s + stage.weights, w, (stage.n_weights() + stage.filters) * sizeof(float));
  if (!transposed) return;
  float* to = s + stage.transposed;
  for (int64_t ky = 0; ky < stage.kernel; ++ky)
    for (int64_t kx = stage.kernel - 1; kx >= 0; --kx)
      for (int64_t o = 0; o < stage.filters; ++o)
        for (int64_t c = 0; c < stage.channels; ++c)
          *to++ = w[((ky * stage.kernel + kx) * stage.channels + c) * stage.filters + o];
}

}  // namespace mile::MILE_ISA
