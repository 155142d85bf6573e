// What the kernel computes, written out number by number in double precision, for comparison.
#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernel.hpp"

namespace reference {

using mile::Activation;
using mile::Head;
using mile::Network;
using Numbers = std::vector<double>;

struct Pair {
  double value, slope;
};

inline double logistic(double z) { return 1.0 / (1.0 + std::exp(-z)); }

inline Pair activate(Activation activation, double z) {
  switch (activation) {
    case Activation::tanh: {
      const double h = std::tanh(z);
      return {h, 1.0 - h * h};
    }
    case Activation::gelu: {
      const double a = 1.5957691216057308, b = 0.07135481282692908, s = logistic(z * (a + b * z * z)), h = z * s;
      return {h, s + h * (1.0 - s) * (a + 3.0 * b * z * z)};
    }
    case Activation::silu: {
      const double s = logistic(z), h = z * s;
      return {h, s + h * (1.0 - s)};
    }
    case Activation::sigmoid: {
      const double h = logistic(z);
      return {h, h * (1.0 - h)};
    }
    default:
      return {z < 0.0 ? 0.0 : z, z > 0.0 ? 1.0 : 0.0};
  }
}

// One convolution with its pooling, for one image [height][width][channel].
struct Stage {
  int64_t height, width, channels, filters, kernel, padding, pool;
  const float* weights;
  int64_t position;
  Numbers in, slope, d_in;

  int64_t out_height() const { return height + 2 * padding - kernel + 1; }
  int64_t out_width() const { return width + 2 * padding - kernel + 1; }
  int64_t pooled_height() const { return out_height() / pool; }
  int64_t pooled_width() const { return out_width() / pool; }
  int64_t n_weights() const { return kernel * kernel * channels * filters; }

  // f(place of the weight, place of the input) for all products of a pixel of the result.
  template <class F>
  void each(int64_t y, int64_t x, int64_t o, const F& f) const {
    for (int64_t ky = 0; ky < kernel; ++ky)
      for (int64_t kx = 0; kx < kernel; ++kx) {
        const int64_t iy = y + ky - padding, ix = x + kx - padding;
        if (iy < 0 || ix < 0 || iy >= height || ix >= width) continue;
        for (int64_t c = 0; c < channels; ++c)
          f(((ky * kernel + kx) * channels + c) * filters + o, (iy * width + ix) * channels + c);
      }
  }

  Numbers forward(Activation activation, const Numbers& image) {
    in = image;
    slope.assign(out_height() * out_width() * filters, 0.0);
    Numbers pooled(pooled_height() * pooled_width() * filters, 0.0);
    for (int64_t y = 0; y < out_height(); ++y)
      for (int64_t x = 0; x < out_width(); ++x)
        for (int64_t o = 0; o < filters; ++o) {
          double sum = weights[n_weights() + o];
          each(y, x, o, [&](int64_t w, int64_t i) { sum += double(weights[w]) * in[i]; });
          const Pair found = activate(activation, sum);
          slope[(y * out_width() + x) * filters + o] = found.slope;
          const int64_t py = y / pool, px = x / pool;
          if (py < pooled_height() && px < pooled_width())
            pooled[(py * pooled_width() + px) * filters + o] += found.value / double(pool * pool);
        }
    return pooled;
  }

  Numbers backward(const Numbers& d_out, Numbers& gradient) const {
    Numbers d(in.size(), 0.0);
    for (int64_t y = 0; y < pooled_height() * pool; ++y)
      for (int64_t x = 0; x < pooled_width() * pool; ++x)
        for (int64_t o = 0; o < filters; ++o) {
          const double by = d_out[((y / pool) * pooled_width() + x / pool) * filters + o] / double(pool * pool) *
                            slope[(y * out_width() + x) * filters + o];
          gradient[position + n_weights() + o] += by;
          each(y, x, o, [&](int64_t w, int64_t i) {
            gradient[position + w] += by * in[i];
            d[i] += by * double(weights[w]);
          });
        }
    return d;
  }
};

struct Result {
  double value = 0.0;
  Numbers gradient;
  std::vector<Numbers> outputs;  // of each row
};

// The weighted log likelihood of one row from its outputs; the derivatives take their place.
inline double likelihood(const Network& network, double weight, float y, int32_t label, Numbers& out) {
  const double log_sqrt_two_pi = 0.9189385332046727, limit = 13.815510557964274;
  if (network.head == Head::categorical) {
    double largest = out[0], total = 0.0;
    for (double z : out) largest = std::max(largest, z);
    for (double z : out) total += std::exp(z - largest);
    const double found = out[label] - largest - std::log(total);
    for (size_t c = 0; c < out.size(); ++c)
      out[c] = weight * ((int32_t(c) == label ? 1.0 : 0.0) - std::exp(out[c] - largest) / total);
    return weight * found;
  }
  const double residual = double(y) - out[0], raw = out[1];
  if (network.head == Head::bounded_gaussian) {
    const double s = 1.0 / (std::exp(-raw) + 0.1), variance = double(network.floor) * network.floor + s * s;
    const double slope = s * s * s * std::exp(-raw) / variance;  // of log sigma
    out[0] = weight * residual / variance;
    out[1] = weight * (residual * residual / variance - 1.0) * slope;
    return weight * (-0.5 * std::log(variance) - 0.5 * residual * residual / variance - log_sqrt_two_pi);
  }
  const double log_scale = std::min(std::max(raw, -limit), limit), precision = std::exp(-log_scale);
  const double z = residual * precision;
  out[0] = weight * z * precision;
  out[1] = raw > limit || raw < -limit ? 0.0 : weight * (z * z - 1.0);
  return weight * (-log_scale - 0.5 * z * z - log_sqrt_two_pi);
}

// All rows, one after another. With slopes [output][stride] there is no head.
inline Result evaluate(const Network& network, const mile::Rows& rows, int64_t first, int64_t last,
                       const float* position, int64_t dimension, bool with_head) {
  Result result;
  result.gradient.assign(dimension, 0.0);
  std::vector<Stage> stages;
  int64_t at = 0, n_inputs = network.sizes[0];
  for (int64_t k = 0; k < network.n_stages; ++k) {
    const int64_t* numbers = network.image + 3 + 4 * k;
    Stage stage = {};
    stage.height = k ? stages[k - 1].pooled_height() : network.image[0];
    stage.width = k ? stages[k - 1].pooled_width() : network.image[1];
    stage.channels = k ? stages[k - 1].filters : network.image[2];
    stage.filters = numbers[0], stage.kernel = numbers[1], stage.padding = numbers[2], stage.pool = numbers[3];
    stage.weights = position + at, stage.position = at;
    at += stage.n_weights() + stage.filters;
    stages.push_back(stage);
    if (!k) n_inputs = stage.height * stage.width * stage.channels;
  }
  const int64_t dense = at;
  for (int64_t index = first; index < last; ++index) {
    const int64_t row = rows.order ? rows.order[index] : index;
    Numbers h(n_inputs);
    for (int64_t i = 0; i < n_inputs; ++i) h[i] = rows.x[i * rows.stride + row];
    for (Stage& stage : stages) h = stage.forward(network.activation, h);
    std::vector<Numbers> inputs, slopes;
    at = dense;
    for (int64_t l = 0; l < network.n_layers; ++l) {
      const int64_t in = network.sizes[l], out = network.sizes[l + 1];
      Numbers z(out), slope(out, 1.0);
      for (int64_t o = 0; o < out; ++o) {
        z[o] = position[at + in * out + o];
        for (int64_t i = 0; i < in; ++i) z[o] += double(position[at + i * out + o]) * h[i];
        if (l + 1 < network.n_layers) {
          const Pair found = activate(network.activation, z[o]);
          z[o] = found.value, slope[o] = found.slope;
        }
      }
      inputs.push_back(h), slopes.push_back(slope);
      h = z;
      at += (in + 1) * out;
    }
    result.outputs.push_back(h);
    if (rows.slopes) {
      for (size_t o = 0; o < h.size(); ++o) h[o] = rows.slopes[o * rows.stride + index];
    } else if (with_head) {
      const float* y = static_cast<const float*>(rows.y);
      const int32_t* label = static_cast<const int32_t*>(rows.y);
      const bool is_class = network.head == Head::categorical;
      result.value += likelihood(network, rows.weight[row], is_class ? 0.0f : y[row], is_class ? label[row] : 0, h);
    } else {
      continue;
    }
    for (int64_t l = network.n_layers - 1; l >= 0; --l) {
      const int64_t in = network.sizes[l], out = network.sizes[l + 1];
      at -= (in + 1) * out;
      Numbers below(in, 0.0);
      for (int64_t o = 0; o < out; ++o) {
        const double d = h[o] * slopes[l][o];
        result.gradient[at + in * out + o] += d;
        for (int64_t i = 0; i < in; ++i) {
          result.gradient[at + i * out + o] += d * inputs[l][i];
          below[i] += d * double(position[at + i * out + o]);
        }
      }
      h = below;
    }
    for (int64_t k = int64_t(stages.size()) - 1; k >= 0; --k) h = stages[k].backward(h, result.gradient);
  }
  return result;
}

}  // namespace reference
