// Log likelihood of a perceptron and its gradient, forward and backward fused over tiles of rows that stay in the
// nearest cache. Compiled once per instruction set.
#include "kernel.hpp"

#include "attention.hpp"
#include "convolutions.hpp"
#include "dynamics.hpp"
#include "heads.hpp"
#include "layers.hpp"
#include "mixture.hpp"
#include "priors.hpp"
#include "quantiles.hpp"

namespace mile::MILE_ISA {

constexpr float log_scale_limit = 13.815510557964274f;  // ln 1e6, as in likelihoods/gaussian.py

MILE_INLINE int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }
MILE_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// Where everything lies in scratch memory, in floats. Weights and their gradients lie in panels: those of columns
// [c, c + width) of a layer with n inputs begin at n * c and have `width` numbers a row. Sizes and places have 64 bits
// throughout: with a million inputs their products pass 32. Rows of a tile and lanes of a vector are few: `int`.
struct Layer {
  int64_t in, out;
  int64_t columns;     // `out` padded to whole vectors
  int64_t position;    // in the vector of parameters
  int64_t weights;     // [in] x columns, in panels; head: [out][columns of its input]
  int64_t transposed;  // [out] x columns of the layer below, in panels; not in the first layer and the head
  int64_t bias;
  int64_t gradient, bias_gradient;
  int64_t hidden, slopes;  // in strips, as in layers.hpp
};

struct Plan {
  int n_layers;
  int64_t tile;
  Layer layers[max_layers];
  int64_t gradients, gradients_end;
  int n_stages;
  Stage stages[max_stages];
  int64_t flat, derivatives;  // with convolutions: weights of the first dense layer [in][out], its derivatives [out][tile]
  int64_t x;        // [feature][tile]
  int64_t y, weight;
  int64_t outputs;  // [output][tile], overwritten by derivatives
  int64_t first_hidden;  // without hidden layers: x in strips
  int64_t size;

  explicit Plan(const Network& network) {
    n_layers = int(network.n_layers);
    int64_t widths = 0, at = 0, position = 0;
    auto take = [&at](int64_t n) {
      int64_t here = at;
      at += round_up(n, 16);
      return here;
    };
    n_stages = int(network.n_stages);
    const bool keeps_slope = network.activation == Activation::gelu || network.activation == Activation::silu;
    position = plan_stages(network, keeps_slope, take);
    for (int l = 0; l < n_layers; ++l) {
      Layer& layer = layers[l];
      layer.in = network.sizes[l];
      layer.out = network.sizes[l + 1];
      layer.columns = round_up(layer.out, lanes);
      layer.position = position;
      position += (layer.in + 1) * layer.out;
      widths += layer.columns;
    }
    // Activations of a tile should leave room for weights in 32 KB, but long tiles make fewer round trips of gradients.
    tile = n_stages ? image_tile : widths <= 64 ? 96 : 48;
    for (int l = 0; l + 1 < n_layers; ++l) {
      Layer& layer = layers[l];
      layer.weights = take(layer.in * layer.columns);
      layer.bias = take(layer.columns);
      layer.transposed = l > 0 ? take(layer.out * layers[l - 1].columns) : 0;
      layer.hidden = take(tile * layer.columns);
      layer.slopes = keeps_slope ? take(tile * layer.columns) : 0;
    }
    Layer& head = layers[n_layers - 1];
    first_hidden = n_layers == 1 ? take(tile * round_up(head.in, lanes)) : 0;
    head.weights = take(head.out * head_columns());
    head.bias = take(head.out);
    flat = n_stages ? take(layers[0].in * layers[0].out) : 0;
    derivatives = n_stages ? take(layers[0].out * tile) : 0;
    gradients = at;
    for (int k = 0; k < n_stages; ++k) stages[k].gradient = take(stages[k].n_weights() + stages[k].filters);
    for (int l = 0; l + 1 < n_layers; ++l) {
      Layer& layer = layers[l];
      layer.gradient = take(layer.in * layer.columns);
      layer.bias_gradient = take(layer.columns);
    }
    head.gradient = take(head.out * head_columns());
    head.bias_gradient = take(head.out);
    gradients_end = at;
    x = take(layers[0].in * tile);
    y = take(tile);
    weight = take(tile);
    outputs = take(head.out * tile);
    size = at;
  }

  // Place the convolutions; return how many parameters they have.
  template <class Take>
  int64_t plan_stages(const Network& network, bool keeps_slope, const Take& take) {
    int64_t position = 0;
    for (int k = 0; k < n_stages; ++k) {
      Stage& stage = stages[k];
      const int64_t* numbers = network.image + 3 + 4 * k;
      stage.height = k ? stages[k - 1].pooled_height : network.image[0];
      stage.width = k ? stages[k - 1].pooled_width : network.image[1];
      stage.channels = k ? stages[k - 1].filters : network.image[2];
      stage.filters = numbers[0];
      stage.kernel = numbers[1];
      stage.padding = numbers[2];
      stage.pool = numbers[3];
      stage.out_height = stage.height + 2 * stage.padding - stage.kernel + 1;
      stage.out_width = stage.width + 2 * stage.padding - stage.kernel + 1;
      stage.pooled_height = stage.out_height / stage.pool;
      stage.pooled_width = stage.out_width / stage.pool;
      stage.position = position;
      position += stage.n_weights() + stage.filters;
      stage.weights = take(stage.n_weights() + stage.filters);
      stage.transposed = k ? take(stage.n_weights()) : 0;
      stage.input = take(stage.padded_size() * image_tile);
      stage.convolved = take(stage.convolved_size() * image_tile);
      stage.slopes = keeps_slope ? take(stage.convolved_size() * image_tile) : 0;
    }
    return position;
  }

  // From one strip of a hidden layer to the next.
  int64_t strip() const { return tile * lanes; }
  const Layer& head() const { return layers[n_layers - 1]; }
  // Columns of the head's input.
  int64_t head_columns() const {
    return n_layers > 1 ? layers[n_layers - 2].columns : round_up(layers[0].in, lanes);
  }
  int64_t head_input() const { return n_layers > 1 ? layers[n_layers - 2].hidden : first_hidden; }
};

// Lay a matrix w[n][columns] out in panels, or back.
template <class F>
MILE_INLINE void each_in_panels(int64_t n, int64_t columns, int64_t padded, const F& f) {
  each_panel(padded, [&](auto vectors, int64_t c) {
    constexpr int width = decltype(vectors)::value * lanes;
    const int real = int(smaller(width, columns - c));
    for (int64_t k = 0; k < n; ++k) f(k, c, real, n * c + k * width, width);
  });
}

static void load_head(const Plan& plan, const float* position, float* s) {
  const Layer& head = plan.head();
  const float* w = position + head.position;
  const int64_t columns = plan.head_columns();
  for (int64_t o = 0; o < head.out; ++o) {
    for (int64_t i = 0; i < columns; ++i) s[head.weights + o * columns + i] = i < head.in ? w[i * head.out + o] : 0.0f;
    s[head.bias + o] = w[head.in * head.out + o];
  }
}

static void load_position(const Network& network, const float* position, bool backward, float* s) {
  const Plan plan(network);
  for (int k = 0; k < plan.n_stages; ++k) {
    const Stage& stage = plan.stages[k];
    load_stage(stage, position, backward && k > 0, s);
    if (stage.padding) std::memset(s + stage.input, 0, stage.padded_size() * image_tile * sizeof(float));
  }
  if (plan.n_stages && backward) {
    const Layer& first = plan.layers[0];
    std::memcpy(s + plan.flat, position + first.position, first.in * first.out * sizeof(float));
  }
  for (int l = 0; l + 1 < plan.n_layers; ++l) {
    const Layer& layer = plan.layers[l];
    const float* w = position + layer.position;
    const float* bias = w + layer.in * layer.out;
    each_in_panels(layer.in, layer.out, layer.columns, [&](int64_t k, int64_t c, int real, int64_t at, auto width) {
      float* to = s + layer.weights + at;
      const float* from = w + k * layer.out + c;
      if (real == width) {
        std::memcpy(to, from, width * sizeof(float));
        return;
      }
      for (int j = 0; j < width; ++j) to[j] = j < real ? from[j] : 0.0f;
    });
    for (int64_t j = 0; j < layer.columns; ++j) s[layer.bias + j] = j < layer.out ? bias[j] : 0.0f;
    if (backward && l > 0) {
      each_in_panels(layer.out, layer.in, plan.layers[l - 1].columns,
                     [&](int64_t k, int64_t c, int real, int64_t at, int width) {
                       float* to = s + layer.transposed + at;
                       for (int j = 0; j < real; ++j) to[j] = w[(c + j) * layer.out + k];
                       for (int j = real; j < width; ++j) to[j] = 0.0f;
                     });
    }
  }
  load_head(plan, position, s);
}

// Without hidden layers the head reads its input in strips.
static void fill_first_hidden(const Plan& plan, int active, float* s) {
  if (plan.n_layers > 1) return;
  const int64_t columns = plan.head_columns(), d = plan.layers[0].in;
  float* to = s + plan.first_hidden;
  for (int64_t i = 0; i < columns; ++i)
    for (int r = 0; r < active; ++r)
      to[i / lanes * plan.strip() + r * lanes + i % lanes] = i < d ? s[plan.x + i * plan.tile + r] : 0.0f;
}

// Copy rows [first, first + n) of the data into the tile, zeros behind them; return the rows to work on.
static int load_tile(const Plan& plan, const Rows& rows, int64_t first, int n, bool with_y, float* s) {
  const int active = int(round_up(n, row_multiple));
  const int64_t d = plan.layers[0].in, t = plan.tile;
  float* x = s + plan.x;
  // Classes, which are integers, are copied bit by bit too.
  auto load_rows = [&](const float* from, float* to, int stop) {
    int r = 0;
    if (rows.order)
      for (; r < n; ++r) to[r] = from[rows.order[first + r]];
    for (; r + lanes <= n; r += lanes) store(to + r, load(from + first + r));
    for (; r < n; ++r) to[r] = from[first + r];
    for (; r < stop; ++r) to[r] = 0.0f;
  };
  if (plan.n_stages) {
    const Stage& stage = plan.stages[0];
    int64_t i = 0;
    for (int64_t y = 0; y < stage.height; ++y) {
      float* to = s + stage.input + stage.pixel(y, 0) * image_tile;
      for (int64_t k = 0; k < stage.width * stage.channels; ++k, to += image_tile)
        load_rows(rows.x + i++ * rows.stride, to, image_tile);
    }
  } else {
    for (int64_t i = 0; i < d; ++i) load_rows(rows.x + i * rows.stride, x + i * t, active);
  }
  if (with_y) {
    load_rows(static_cast<const float*>(rows.y), s + plan.y, int(t));
    load_rows(rows.weight, s + plan.weight, int(t));
  }
  if (!plan.n_stages) fill_first_hidden(plan, active, s);
  return active;
}

// The way from a pixel of a convolution's result to where it goes.
MILE_INLINE auto result_of(const Plan& plan, int k, float* s) {
  return [&plan, k, s](int64_t y, int64_t x) {
    if (k + 1 < plan.n_stages) return s + plan.stages[k + 1].input + plan.stages[k + 1].pixel(y, x) * image_tile;
    const Stage& stage = plan.stages[k];
    return s + plan.x + (y * stage.pooled_width + x) * stage.filters * image_tile;
  };
}

template <class Act>
static void forward_stages(const Plan& plan, int active, float* s) {
  const int images = int(round_up(active, lanes));
  for (int k = 0; k < plan.n_stages; ++k) {
    convolve<Act>(plan.stages[k], images, s);
    pool(plan.stages[k], images, s, result_of(plan, k, s));
  }
  fill_first_hidden(plan, active, s);
}

// From the derivatives of the first dense layer to the gradients of all filters.
template <class Act>
static void backward_stages(const Plan& plan, int active, float* s) {
  const int images = int(round_up(active, lanes));
  const Layer& first = plan.layers[0];
  const float* d = s + plan.outputs;
  if (plan.n_layers > 1) {
    float* to = s + plan.derivatives;
    for (int64_t o = 0; o < first.out; ++o, to += image_tile) {
      const float* from = s + first.hidden + o / lanes * plan.strip() + o % lanes;
      for (int r = 0; r < active; ++r) to[r] = from[r * lanes];
      for (int r = active; r < images; ++r) to[r] = 0.0f;
    }
    d = s + plan.derivatives;
  }
  dense_derivatives(first.in, first.out, s + plan.flat, d, images, s + plan.x);
  for (int k = plan.n_stages - 1; k >= 0; --k) {
    unpool<Act>(plan.stages[k], images, s, result_of(plan, k, s));
    weight_gradients(plan.stages[k], images, s);
    if (k > 0) input_derivatives(plan.stages[k], images, s);
  }
}

// Values and slopes of a layer from its sums.
template <class Act>
static void activate_layer(const Plan& plan, const Layer& layer, int rows, float* s) {
  if constexpr (!Act::is_cheap) {
    if (rows == plan.tile) return activate<Act>(plan.tile * layer.columns, s + layer.hidden, s + layer.slopes);
    for (int64_t at = 0; at < plan.tile * layer.columns; at += plan.strip())
      activate<Act>(rows * lanes, s + layer.hidden + at, s + layer.slopes + at);
  }
}

template <class Act, bool by_feature>
static void forward_layer(const Plan& plan, const Layer& layer, const float* in, int64_t next_in, int active, float* s) {
  each_panel(layer.columns, [&](auto vectors, int64_t c) {
    constexpr int N = decltype(vectors)::value;
    float* out = s + layer.hidden + c * plan.tile;
    for (int r = 0; r < active; r += block(N))
      forward_block<Act, N, by_feature>(in + (by_feature ? r : r * lanes), next_in, s + layer.weights + layer.in * c,
                                        s + layer.bias + c, layer.in, out + r * lanes, plan.strip());
  });
  activate_layer<Act>(plan, layer, active, s);
}

template <class Act>
static void forward(const Plan& plan, int active, float* s) {
  if (plan.n_stages) forward_stages<Act>(plan, active, s);
  for (int l = 0; l + 1 < plan.n_layers; ++l) {
    if (l == 0)
      forward_layer<Act, true>(plan, plan.layers[0], s + plan.x, plan.tile, active, s);
    else
      forward_layer<Act, false>(plan, plan.layers[l], s + plan.layers[l - 1].hidden, plan.strip(), active, s);
  }
}

// The same for the first row of the tile alone, with the weights where they are: copying them would take longer than
// using them once. Each number is the sum of the same products in the same order, so the bits are the same.
template <class Act>
static void forward_one(const Plan& plan, const float* position, float* s) {
  for (int l = 0; l + 1 < plan.n_layers; ++l) {
    const Layer& layer = plan.layers[l];
    const float *w = position + layer.position, *bias = w + layer.in * layer.out;
    each_panel(layer.columns, [&](auto vectors, int64_t c) {
      constexpr int N = decltype(vectors)::value;
      V acc[1][N];
      for (int v = 0; v < N; ++v) acc[0][v] = load(bias + c + v * lanes);
      if (l == 0) {
        multiply<1, N, true>(acc, s + plan.x, plan.tile, w + c, layer.out, layer.in);
      } else {
        const float* in = s + plan.layers[l - 1].hidden;
        for (int64_t k = 0; k < layer.in; k += lanes)
          multiply<1, N, true>(acc, in + k * plan.tile, 1, w + k * layer.out + c, layer.out, lanes);
      }
      V none;
      float* out = s + layer.hidden + c * plan.tile;
      for (int v = 0; v < N; ++v)
        store(out + v * plan.strip(), Act::is_cheap ? Act::value(acc[0][v], none) : acc[0][v]);
    });
    activate_layer<Act>(plan, layer, 1, s);
  }
}

// Outputs [output][row]: few, so each is a sum over the columns of a row. One vector holds the sums of several rows
// and O outputs.
template <int O>
static void head_sums(const Plan& plan, int64_t o, int active, float* s) {
  constexpr int rows = lanes / O;
  const int64_t columns = plan.head_columns();
  const float *input = s + plan.head_input(), *w = s + plan.head().weights + o * columns;
  float* out = s + plan.outputs + o * plan.tile;
  for (int r = 0; r < active; r += rows) {
    V acc[lanes] = {};
    for (int64_t c = 0; c < columns; c += lanes) {
      V wv[O];
      for (int k = 0; k < O; ++k) wv[k] = load(w + k * columns + c);
#pragma GCC unroll 16
      for (int q = 0; q < rows; ++q) {
        V h = load(input + c * plan.tile + (r + q) * lanes);
        for (int k = 0; k < O; ++k) acc[k * rows + q] += wv[k] * h;
      }
    }
    V result = sums(acc);
    std::memcpy(out + r, &result, rows * sizeof(float));
    if constexpr (O == 2)
      std::memcpy(out + plan.tile + r, reinterpret_cast<const float*>(&result) + rows, rows * sizeof(float));
  }
}

// The same for more than two outputs: columns and rows change places in registers, so that nothing is summed over lanes.
// All of it is inlined, or the columns would leave the registers between the outputs, of which at most five go together.
constexpr int most_turned = 5;

template <int O>
MILE_INLINE void turned_head_sums(int n, const V (&h)[lanes], const float* w, int64_t columns, float* out, int64_t tile,
                                  bool is_first) {
  if constexpr (O > 1)
    if (n < O) return turned_head_sums<O - 1>(n, h, w, columns, out, tile, is_first);
  V acc[O];
#pragma GCC unroll 5
  for (int q = 0; q < O; ++q) acc[q] = is_first ? (V){} : load(out + q * tile);
#pragma GCC unroll 16
  for (int k = 0; k < lanes; ++k)
#pragma GCC unroll 5
    for (int q = 0; q < O; ++q) acc[q] += fill(w[q * columns + k]) * h[k];
#pragma GCC unroll 5
  for (int q = 0; q < O; ++q) store(out + q * tile, acc[q]);
}

static __attribute__((noinline)) void turned_head_outputs(const Plan& plan, int active, float* s) {
  const int64_t n = plan.head().out, blocks = (n + most_turned - 1) / most_turned, columns = plan.head_columns();
  for (int r = 0; r < active; r += lanes)
    for (int64_t c = 0; c < columns; c += lanes) {
      V h[lanes];
#pragma GCC unroll 16
      for (int q = 0; q < lanes; ++q) h[q] = load(s + plan.head_input() + c * plan.tile + (r + q) * lanes);
      transpose(h);
      for (int64_t b = 0, o = 0; b < blocks; ++b) {
        const int64_t stop = (b + 1) * n / blocks;
        turned_head_sums<most_turned>(int(stop - o), h, s + plan.head().weights + o * columns + c, columns,
                                      s + plan.outputs + o * plan.tile + r, plan.tile, c == 0);
        o = stop;
      }
    }
}

// The heads of heads.hpp.
MILE_INLINE bool is_other(const Network& network) { return network.head > Head::bounded_gaussian; }

static void head_outputs(const Network& network, const Plan& plan, int active, float* s) {
  const Layer& head = plan.head();
  int64_t o = 0;
  if (is_other(network) && head.out > 2) {
    turned_head_outputs(plan, active, s);
    o = head.out;
  }
  for (; o + 2 <= head.out; o += 2) head_sums<2>(plan, o, active, s);
  if (o < head.out) head_sums<1>(plan, o, active, s);
  for (o = 0; o < head.out; ++o) {
    float* out = s + plan.outputs + o * plan.tile;
    const float bias = s[head.bias + o];
    for (int r = 0; r < active; r += lanes) store(out + r, load(out + r) + bias);
    for (int64_t r = active; r < round_up(active, lanes); ++r) out[r] = 0.0f;
  }
}

// Sum of the rows' weighted log likelihoods; outputs become their derivatives.
static double gaussian(const Plan& plan, int active, float* s) {
  float *location = s + plan.outputs, *raw = location + plan.tile;
  V total = {};
  for (int r = 0; r < active; r += lanes) {
    V w = load(s + plan.weight + r);
    V raw_scale = load(raw + r);
    V log_scale = at_least(at_most(raw_scale, log_scale_limit), -log_scale_limit);
    V precision = exp(-log_scale);
    V residual = (load(s + plan.y + r) - load(location + r)) * precision;
    V square = residual * residual;
    total += w * (-log_scale - 0.5f * square - log_sqrt_two_pi);
    store(location + r, w * residual * precision);
    V d = w * (square - 1.0f);
    store(raw + r, ((raw_scale > log_scale_limit) | (raw_scale < -log_scale_limit)) ? (V){} : d);
  }
  return sum(total);
}

static double bounded_gaussian(const Plan& plan, float floor, int active, float* s) {
  float *location = s + plan.outputs, *raw = location + plan.tile;
  V total = {};
  for (int r = 0; r < active; r += lanes) {
    V w = load(s + plan.weight + r);
    const Bounded link(load(raw + r), floor);
    V residual = load(s + plan.y + r) - load(location + r);
    V scaled = residual * link.precision, square = residual * scaled;
    total += w * (0.5f * (log(link.precision) - square) - log_sqrt_two_pi);
    store(location + r, w * scaled);
    store(raw + r, w * (square - 1.0f) * link.slope);
  }
  return sum(total);
}

// The largest logit of each row, one vector of rows at a time.
MILE_INLINE V largest_logit(const float* out, int64_t n_outputs, int64_t tile) {
  V largest = load(out);
  for (int64_t c = 1; c < n_outputs; ++c) {
    V z = load(out + c * tile);
    largest = largest > z ? largest : z;
  }
  return largest;
}

static double categorical(const Plan& plan, int active, float* s) {
  float* outputs = s + plan.outputs;
  const int64_t n = plan.head().out;
  V total = {};
  for (int r = 0; r < active; r += lanes) {
    V w = load(s + plan.weight + r);
    I y = bits<I>(load(s + plan.y + r));
    V largest = largest_logit(outputs + r, n, plan.tile), chosen = {}, normalizer = {};
    for (int64_t c = 0; c < n; ++c) {
      float* at = outputs + c * plan.tile + r;
      V z = load(at) - largest;
      V e = exp(z);
      chosen = y == int32_t(c) ? z : chosen;
      normalizer += e;
      store(at, e);
    }
    total += w * (chosen - log(normalizer));
    V scale = w / normalizer;
    for (int64_t c = 0; c < n; ++c) {
      float* at = outputs + c * plan.tile + r;
      store(at, (y == int32_t(c) ? w : (V){}) - load(at) * scale);
    }
  }
  return sum(total);
}

static __attribute__((noinline)) double other_likelihood(const Network& network, const Plan& plan, int active, float* s) {
  const HeadRows rows = {s + plan.outputs, plan.tile, s + plan.y, s + plan.weight, active};
  switch (network.head) {
    case Head::mixture:
      return network.n_numbers == 3 ? normal_mixture<3>(network, rows) : normal_mixture<0>(network, rows);
    case Head::student_t:
      return student_t(network, rows);
    case Head::poisson:
      return poisson(network, rows);
    case Head::negative_binomial:
      return negative_binomial(network, rows);
    default:
      return ordinal(network, rows);
  }
}

static double likelihood(const Network& network, const Plan& plan, int active, float* s) {
  if (is_other(network)) return other_likelihood(network, plan, active, s);
  switch (network.head) {
    case Head::categorical:
      return categorical(plan, active, s);
    case Head::bounded_gaussian:
      return bounded_gaussian(plan, network.floor, active, s);
    default:
      return gaussian(plan, active, s);
  }
}

// Gradient of a weight matrix: rows of `in` features (n of them) against a panel-wise matrix d in strips. The first
// block also sums the bias. By feature, inputs are dealt to blocks of nearly equal size; else a block ends with its strip.
template <bool by_feature>
static void weight_gradient(int64_t n, bool with_bias, const float* in, int64_t next_in, const float* d, int64_t columns,
                            int64_t tile, int rows, float* gradient, float* bias) {
  each_panel(columns, [&](auto vectors, int64_t c) {
    constexpr int N = decltype(vectors)::value, most = by_feature ? block(N) : strip_block(N);
    const int64_t total = n + with_bias, blocks = (total + most - 1) / most;
    for (int64_t k = 0, b = 0; k < n; ++b) {
      const int64_t stop = by_feature ? (b + 1) * total / blocks - with_bias : smaller(k + most, n);
      gradient_rows<most, N, by_feature>(int(stop - k), with_bias && b == 0,
                                         in + (by_feature ? k * next_in : k / lanes * next_in + k % lanes), next_in,
                                         d + c * tile, tile * lanes, rows, gradient + n * c + k * N * lanes, bias + c);
      k = stop;
    }
  });
}

// From the derivatives of two outputs to the gradient of the head's weights and the derivatives of the layer below, which
// are written over its values: one way through the rows.
template <class Act>
static void two_heads(const Plan& plan, int active, float* s) {
  const Layer &head = plan.head(), &below = plan.layers[plan.n_layers - 2];
  const float *first = s + plan.outputs, *second = first + plan.tile;
  each_panel(below.columns, [&](auto vectors, int64_t c) {
    constexpr int N = decltype(vectors)::value, S = partial_sums(2 * N);
    float *hidden = s + below.hidden + c * plan.tile, *slopes = s + below.slopes + c * plan.tile;
    V w[2][N], acc[S][2][N] = {};
    for (int o = 0; o < 2; ++o)
      for (int v = 0; v < N; ++v) w[o][v] = load(s + head.weights + o * below.columns + c + v * lanes);
    for (int row = 0; row < active; row += S) {
#pragma GCC unroll 4
      for (int q = 0; q < S; ++q) {
        const V d[2] = {fill(first[row + q]), fill(second[row + q])};
#pragma GCC unroll 4
        for (int v = 0; v < N; ++v) {
          const int64_t at = v * plan.strip() + (row + q) * lanes;
          const V h = load(hidden + at);
          V total = {};
#pragma GCC unroll 2
          for (int o = 0; o < 2; ++o) {
            acc[q][o][v] += d[o] * h;
            total += d[o] * w[o][v];
          }
          store(hidden + at, Act::times_slope(total, Act::keeps_slope ? load(slopes + at) : h));
        }
      }
    }
    for (int o = 0; o < 2; ++o)
      for (int v = 0; v < N; ++v) {
        for (int q = 1; q < S; ++q) acc[0][o][v] += acc[q][o][v];
        float* at = s + head.gradient + 2 * c + (o * N + v) * lanes;
        store(at, load(at) + acc[0][o][v]);
      }
  });
}

// d and w by feature, as they are of the head, or in strips and panels.
template <class Act, bool by_feature>
static void backward_layer(const Plan& plan, const Layer& below, const float* d, int64_t next_d, const float* w,
                           int64_t depth, int active, float* s) {
  each_panel(below.columns, [&](auto vectors, int64_t c) {
    constexpr int N = decltype(vectors)::value;
    const int64_t ld_w = by_feature ? below.columns : N * lanes;
    for (int r = 0; r < active; r += block(N)) {
      const int64_t at = c * plan.tile + r * lanes;
      backward_block<Act, N, by_feature>(d + (by_feature ? r : r * lanes), next_d, w + (by_feature ? c : depth * c), ld_w,
                                         depth, s + below.hidden + at, s + below.slopes + at, plan.strip());
    }
  });
}

// The head's part: gradients of its weights, derivatives of the last hidden layer.
template <class Act>
static void backward_head(const Plan& plan, int active, float* s) {
  const Layer& head = plan.head();
  const float* d = s + plan.outputs;
  for (int64_t o = 0; o < head.out; ++o) {
    V total = {};
    for (int r = 0; r < active; r += lanes) total += load(d + o * plan.tile + r);
    s[head.bias_gradient + o] += sum(total);
  }
  if (head.out == 2 && plan.n_layers > 1) return two_heads<Act>(plan, active, s);
  weight_gradient<true>(head.out, false, d, plan.tile, s + plan.head_input(), plan.head_columns(), plan.tile, active,
                        s + head.gradient, nullptr);
  if (plan.n_layers > 1)
    backward_layer<Act, true>(plan, plan.layers[plan.n_layers - 2], d, plan.tile, s + head.weights, head.out, active, s);
}

template <class Act>
static void backward(const Plan& plan, int active, float* s) {
  backward_head<Act>(plan, active, s);
  for (int l = plan.n_layers - 2; l >= 0; --l) {
    const Layer& layer = plan.layers[l];
    if (l < plan.n_layers - 2) {
      const Layer& above = plan.layers[l + 1];
      backward_layer<Act, false>(plan, layer, s + above.hidden, plan.strip(), s + above.transposed, above.out, active,
                                 s);
    }
    // The layer above has used these values: only now may its gradient and its own values go.
    if (l > 0) {
      weight_gradient<false>(layer.in, true, s + plan.layers[l - 1].hidden, plan.strip(), s + layer.hidden,
                             layer.columns, plan.tile, active, s + layer.gradient, s + layer.bias_gradient);
    } else {
      weight_gradient<true>(layer.in, true, s + plan.x, plan.tile, s + layer.hidden, layer.columns, plan.tile, active,
                            s + layer.gradient, s + layer.bias_gradient);
    }
  }
  if (plan.n_stages) backward_stages<Act>(plan, active, s);
}

static void store_gradient(const Plan& plan, const float* s, float* gradient) {
  for (int k = 0; k < plan.n_stages; ++k) {
    const Stage& stage = plan.stages[k];
    std::memcpy(gradient + stage.position, s + stage.gradient, (stage.n_weights() + stage.filters) * sizeof(float));
  }
  for (int l = 0; l + 1 < plan.n_layers; ++l) {
    const Layer& layer = plan.layers[l];
    float* to = gradient + layer.position;
    each_in_panels(layer.in, layer.out, layer.columns, [&](int64_t k, int64_t c, int real, int64_t at, int) {
      for (int j = 0; j < real; ++j) to[k * layer.out + c + j] = s[layer.gradient + at + j];
    });
    for (int64_t j = 0; j < layer.out; ++j) to[layer.in * layer.out + j] = s[layer.bias_gradient + j];
  }
  const Layer& head = plan.head();
  float* to = gradient + head.position;
  each_in_panels(head.out, head.in, plan.head_columns(), [&](int64_t o, int64_t c, int real, int64_t at, int) {
    for (int j = 0; j < real; ++j) to[(c + j) * head.out + o] = s[head.gradient + at + j];
  });
  for (int64_t o = 0; o < head.out; ++o) to[head.in * head.out + o] = s[head.bias_gradient + o];
}

// Call f(place in scratch, place among what is kept of all rows, bytes) for the values and slopes of the hidden layers
// of a tile, the one whose first row this is.
template <class F>
MILE_INLINE void each_kept(const Plan& plan, int64_t row, int active, const F& f) {
  int64_t of_row = 0;
  for (int l = 0; l + 1 < plan.n_layers; ++l) of_row += plan.layers[l].columns * (plan.layers[l].slopes ? 2 : 1);
  int64_t at = row * of_row;
  for (int l = 0; l + 1 < plan.n_layers; ++l) {
    const Layer& layer = plan.layers[l];
    const int64_t places[] = {layer.hidden, layer.slopes};
    for (int64_t place : places) {
      if (!place) continue;
      for (int64_t within = 0; within < plan.tile * layer.columns; within += plan.strip(), at += plan.strip())
        f(place + within, at, active * lanes * sizeof(float));
    }
  }
}

// The derivatives of the outputs as they are given, in place of those of a head.
static void load_slopes(const Plan& plan, const Rows& rows, int64_t first, int n, float* s) {
  for (int64_t o = 0; o < plan.head().out; ++o) {
    float* to = s + plan.outputs + o * plan.tile;
    std::memcpy(to, rows.slopes + o * rows.stride + first, n * sizeof(float));
    for (int64_t r = n; r < plan.tile; ++r) to[r] = 0.0f;
  }
}

template <class Act>
static double gradient_as(const Network& network, const Rows& rows, int64_t first, int64_t last, float* s,
                          float* gradient) {
  const Plan plan(network);
  double total = 0.0;
  std::memset(s + plan.gradients, 0, (plan.gradients_end - plan.gradients) * sizeof(float));
  for (int64_t row = first; row < last; row += plan.tile) {
    const int n = int(smaller(plan.tile, last - row));
    const int active = load_tile(plan, rows, row, n, !rows.slopes, s);
    if (rows.kept)
      each_kept(plan, row, active, [&](int64_t place, int64_t at, size_t n_bytes) {
        std::memcpy(s + place, rows.kept + at, n_bytes);
      });
    else
      forward<Act>(plan, active, s);
    if (rows.slopes) {
      load_slopes(plan, rows, row, n, s);
    } else {
      head_outputs(network, plan, active, s);
      total += likelihood(network, plan, active, s);
    }
    backward<Act>(plan, active, s);
  }
  store_gradient(plan, s, gradient);
  return total;
}

// Call f with the activation as a type.
template <class F>
MILE_INLINE auto with_activation(Activation activation, const F& f) {
  switch (activation) {
    case Activation::tanh:
      return f(Tanh{});
    case Activation::gelu:
      return f(Gelu{});
    case Activation::silu:
      return f(Silu{});
    case Activation::sigmoid:
      return f(Sigmoid{});
    default:
      return f(Relu{});
  }
}

static double gradient(const Network& network, const Rows& rows, int64_t first, int64_t last, float* s,
                       float* gradient) {
  return with_activation(network.activation, [&](auto act) {
    return gradient_as<decltype(act)>(network, rows, first, last, s, gradient);
  });
}

static double value(const Network& network, const Rows& rows, int64_t first, int64_t last, float* s) {
  const Plan plan(network);
  double total = 0.0;
  for (int64_t row = first; row < last; row += plan.tile) {
    const int active = load_tile(plan, rows, row, int(smaller(plan.tile, last - row)), true, s);
    with_activation(network.activation, [&](auto act) { forward<decltype(act)>(plan, active, s); });
    head_outputs(network, plan, active, s);
    total += likelihood(network, plan, active, s);
  }
  return total;
}

static void forward_rows(const Network& network, const Rows& rows, int64_t first, int64_t last, float* s, float* out,
                         float* kept) {
  const Plan plan(network);
  for (int64_t row = first; row < last; row += plan.tile) {
    const int n = int(smaller(plan.tile, last - row));
    const int active = load_tile(plan, rows, row, n, false, s);
    with_activation(network.activation, [&](auto act) { forward<decltype(act)>(plan, active, s); });
    head_outputs(network, plan, active, s);
    for (int64_t o = 0; o < plan.head().out; ++o)
      std::memcpy(out + o * rows.stride + row, s + plan.outputs + o * plan.tile, n * sizeof(float));
    if (kept)
      each_kept(plan, row, active, [&](int64_t place, int64_t at, size_t n_bytes) {
        std::memcpy(kept + at, s + place, n_bytes);
      });
  }
}

// Evaluate all rows tile by tile and call f(row, number of rows) with the outputs in place.
template <class F>
MILE_INLINE void each_output(const Network& network, const Plan& plan, const float* position, const Rows& rows, float* s,
                             const F& f) {
  bool whole_vectors = true;
  for (int l = 0; l + 1 < plan.n_layers; ++l) whole_vectors &= plan.layers[l].out == plan.layers[l].columns;
  if (rows.count == 1 && whole_vectors && plan.n_layers > 1 && !plan.n_stages) {
    load_head(plan, position, s);
    for (int64_t i = 0; i < plan.layers[0].in; ++i) s[plan.x + i * plan.tile] = rows.x[i];
    with_activation(network.activation, [&](auto act) { forward_one<decltype(act)>(plan, position, s); });
    head_outputs(network, plan, 1, s);
    f(0, 1);
    return;
  }
  load_position(network, position, false, s);
  for (int64_t row = 0; row < rows.count; row += plan.tile) {
    const int n = int(smaller(plan.tile, rows.count - row));
    const int active = load_tile(plan, rows, row, n, false, s);
    with_activation(network.activation, [&](auto act) { forward<decltype(act)>(plan, active, s); });
    head_outputs(network, plan, active, s);
    f(row, n);
  }
}

static void outputs(const Network& network, const float* draws, int64_t n_draws, int64_t dimension, const Rows& rows,
                    float* s, float* out) {
  const Plan plan(network);
  for (int64_t draw = 0; draw < n_draws; ++draw, out += plan.head().out * rows.stride) {
    each_output(network, plan, draws + draw * dimension, rows, s, [&](int64_t row, int n) {
      for (int64_t o = 0; o < plan.head().out; ++o)
        std::memcpy(out + o * rows.stride + row, s + plan.outputs + o * plan.tile, n * sizeof(float));
    });
  }
}

// sums[0..n) += v[0..n), n at most one vector.
MILE_INLINE void accumulate(double* sums, V v, int n) {
  typedef double D __attribute__((vector_size(8 * lanes)));
  if (n >= lanes) {
    D total;
    std::memcpy(&total, sums, sizeof total);
    total += __builtin_convertvector(v, D);
    std::memcpy(sums, &total, sizeof total);
  } else {
    for (int k = 0; k < n; ++k) sums[k] += double(v[k]);
  }
}

// `variance` gives that of a raw second output.
template <class F>
static void summarize_gaussian(const Plan& plan, const float* out, const float* centers, int n, double* to,
                               int64_t stride, const F& variance) {
  for (int r = 0; r < n; r += lanes) {
    V center = {};
    if (n - r >= lanes)
      center = load(centers + r);
    else
      for (int k = 0; k < n - r; ++k) center[k] = centers[r + k];
    V away = load(out + r) - center;
    accumulate(to + r, away, n - r);
    accumulate(to + stride + r, away * away, n - r);
    accumulate(to + 2 * stride + r, variance(load(out + plan.tile + r)), n - r);
  }
}

static void summarize_categorical(const Plan& plan, float* out, int n, double* to, int64_t stride) {
  const int64_t n_outputs = plan.head().out;
  for (int r = 0; r < n; r += lanes) {
    V largest = largest_logit(out + r, n_outputs, plan.tile), normalizer = {}, weighted = {};
    for (int64_t c = 0; c < n_outputs; ++c) {
      float* at = out + c * plan.tile + r;
      V z = load(at) - largest, e = z < -87.0f ? (V){} : exp(z);
      normalizer += e;
      weighted += e * z;
      store(at, e);
    }
    V scale = 1.0f / normalizer;
    for (int64_t c = 0; c < n_outputs; ++c)
      accumulate(to + c * stride + r, load(out + c * plan.tile + r) * scale, n - r);
    accumulate(to + n_outputs * stride + r, log(normalizer) - weighted * scale, n - r);
  }
}

static void summarize(const Network& network, const float* draws, int64_t n_draws, int64_t dimension, const Rows& rows,
                      float* s, const float* center, double* sums) {
  const Plan plan(network);
  float* out = s + plan.outputs;
  for (int64_t draw = 0; draw < n_draws; ++draw) {
    each_output(network, plan, draws + draw * dimension, rows, s, [&](int64_t row, int n) {
      if (network.head == Head::categorical)
        summarize_categorical(plan, out, n, sums + row, rows.stride);
      else if (network.head == Head::bounded_gaussian)
        summarize_gaussian(plan, out, center + row, n, sums + row, rows.stride,
                           [&](V raw) { return 1.0f / Bounded(raw, network.floor).precision; });
      else
        summarize_gaussian(plan, out, center + row, n, sums + row, rows.stride, [](V raw) {
          return exp(2.0f * at_least(at_most(raw, log_scale_limit), -log_scale_limit));
        });
    });
  }
}

// One over the standard deviation, of raw second outputs.
MILE_INLINE V precision_of(const Network& network, V raw) {
  if (network.head == Head::bounded_gaussian) return root(Bounded(raw, network.floor).precision);
  return exp(-at_least(at_most(raw, log_scale_limit), -log_scale_limit));
}

static void normals(const Network& network, const float* draws, int64_t n_draws, int64_t dimension, const Rows& rows,
                    float* s, int64_t stride, float* location, float* precision) {
  // So many draws at a time are turned from [draw][row] to [row][draw]: a cache line of each row.
  constexpr int64_t together = 16, most_rows = 96;
  alignas(64) float at[together][most_rows], inverse[together][most_rows];
  const Plan plan(network);
  const float* out = s + plan.outputs;
  for (int64_t first = 0; first < n_draws; first += together) {
    const int64_t n = smaller(together, n_draws - first);
    for (int64_t k = 0; k < n; ++k)
      each_output(network, plan, draws + (first + k) * dimension, rows, s, [&](int64_t row, int count) {
        for (int r = 0; r < count; r += lanes) {
          store(at[k] + row + r, load(out + r));
          store(inverse[k] + row + r, precision_of(network, load(out + plan.tile + r)));
        }
      });
    for (int64_t row = 0; row < rows.count; ++row)
      for (int64_t k = 0; k < n; ++k) {
        location[row * stride + first + k] = at[k][row];
        precision[row * stride + first + k] = inverse[k][row];
      }
  }
}

static void summarize_row(const float* location, const float* precision, const int64_t* ends, const double* shares,
                          int64_t n_groups, const double* levels, const double* normal_levels, int64_t n_levels,
                          float* guess, int64_t guess_size, int64_t* guess_ends, double* moments, double* quantiles,
                          int64_t stride) {
  const Row row = {location, precision, ends, shares, n_groups};
  const Moments found = moments_of(row);
  moments[0] = found.mean;
  moments[stride] = found.variance;
  moments[2 * stride] = found.spread;
  row_quantiles(row, found, levels, normal_levels, n_levels, guess, guess_size, guess_ends, quantiles, stride);
}

static int64_t scratch_size(const Network& network) { return Plan(network).size; }

static const Kernel table = {MILE_ISA_NAME, lanes,   scratch_size, load_position,     gradient, value,
                             forward_rows,  outputs, summarize,    attention_scratch, attend,   attend_slopes,
                             mixture,       weighted_mixture,       normals, summarize_row, normal, normalize, refresh,
                             kick,          drift,   add_prior,     total,   adamw};

}  // namespace mile::MILE_ISA

namespace mile {
#define MILE_JOIN_(a, b) a##b
#define MILE_JOIN(a, b) MILE_JOIN_(a, b)
const Kernel* MILE_JOIN(kernel_, MILE_ISA)() { return &MILE_ISA::table; }
}  // namespace mile
