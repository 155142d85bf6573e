// The library's face: XLA custom calls for compiled programs, and plain C functions for prediction. Chooses the kernel
// for this processor, spreads work over threads, and adds up partial results in an order that does not depend on them.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <exception>
#include <utility>
#include <vector>

#include "kernel.hpp"
#include "memory.hpp"
#include "threads.hpp"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace mile {
namespace {

constexpr int64_t chunk_multiple = 96;  // rows; a whole number of tiles
constexpr int64_t smallest_chunk = 5 * chunk_multiple;
constexpr int64_t most_chunks = 32;
constexpr int64_t no_head = -1;

#if defined(__x86_64__)
bool has_avx2() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#endif

const Kernel* best_kernel() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) return kernel_avx512();
  if (has_avx2()) return kernel_avx2();
#endif
  return kernel_portable();
}

std::atomic<const Kernel*> chosen{nullptr};
// Threads that one call may use besides its own. Set by whoever runs several calls side by side.
std::atomic<int64_t> helpers{1 << 20};

const Kernel& kernel() {
  const Kernel* k = chosen.load(std::memory_order_relaxed);
  if (!k) chosen.store(k = best_kernel());
  return *k;
}

thread_local Scratch network_scratch, call_scratch;

struct Chunks {
  int64_t n, rows;  // the last chunk may be shorter
  explicit Chunks(int64_t count) {
    const int64_t wanted = std::max<int64_t>(1, std::min(most_chunks, count / smallest_chunk));
    const int64_t each = (count + wanted - 1) / wanted;
    rows = std::max<int64_t>(1, (each + chunk_multiple - 1) / chunk_multiple) * chunk_multiple;
    n = std::max<int64_t>(1, (count + rows - 1) / rows);
  }
};

int64_t dimension_of(const Network& network) {
  int64_t d = 0, channels = network.n_stages ? network.image[2] : 0;
  for (int64_t k = 0; k < network.n_stages; ++k) {
    const int64_t* stage = network.image + 3 + 4 * k;  // filters, kernel
    d += (stage[1] * stage[1] * channels + 1) * stage[0];
    channels = stage[0];
  }
  for (int64_t l = 0; l < network.n_layers; ++l) d += (network.sizes[l] + 1) * network.sizes[l + 1];
  return d;
}

int64_t padded(int64_t n) { return (n + 15) / 16 * 16; }

// Log likelihood and gradient of `chains` parameter vectors; slopes and what is kept, if any, have a leading axis for
// them. Per chain, chunks of rows are summed in double precision and in order: neither the threads nor the other chains
// change a bit.
void gradients(const Network& network, const Rows& rows, int64_t chains, const float* const* positions, double* values,
               float* const* results, ffi::ThreadPool* pool, int64_t extra) {
  const Kernel& k = kernel();
  const int64_t d = dimension_of(network), scratch = k.scratch_size(network);
  const Chunks chunks(rows.count);
  auto one = [&](int64_t chain, int64_t chunk, float* to, bool loaded = false) {
    float* s = network_scratch.floats(scratch);
    if (!loaded) k.load(network, positions[chain], true, s);
    const int64_t first = chunk * chunks.rows;
    Rows own = rows;
    if (own.slopes) own.slopes += chain * network.sizes[network.n_layers] * rows.stride;
    if (own.kept) own.kept += chain * most_kept(network, rows.stride);
    return k.gradient(network, own, first, std::min(first + chunks.rows, rows.count), s, to);
  };
  auto add_up = [&](int64_t chain, const float* parts, const double* part_values) {
    double value = 0.0;
    for (int64_t c = 0; c < chunks.n; ++c) value += part_values[c];
    values[chain] = value;
    for (int64_t from = 0; from < d; from += 64) {
      const int64_t n = std::min<int64_t>(64, d - from);
      double sums[64] = {};
      for (int64_t c = 0; c < chunks.n; ++c)
        for (int64_t j = 0; j < n; ++j) sums[j] += parts[c * d + from + j];
      for (int64_t j = 0; j < n; ++j) results[chain][from + j] = float(sums[j]);
    }
  };
  if (chunks.n == 1) {
    for_each(chains, extra, pool, [&](int64_t chain) { values[chain] = one(chain, 0, results[chain]); });
  } else if (chains > extra) {
    // Enough chains to keep every thread busy.
    for_each(chains, extra, pool, [&](int64_t chain) {
      float* parts = call_scratch.floats(chunks.n * d);
      double part_values[most_chunks];
      for (int64_t c = 0; c < chunks.n; ++c) part_values[c] = one(chain, c, parts + c * d, c > 0);
      add_up(chain, parts, part_values);
    });
  } else {
    std::vector<float> parts = zeros<float>(chains * chunks.n * d);
    std::vector<double> part_values = zeros<double>(chains * chunks.n);
    for_each(chains * chunks.n, extra, pool, [&](int64_t item) {
      part_values[item] = one(item / chunks.n, item % chunks.n, parts.data() + item * d);
    });
    for (int64_t chain = 0; chain < chains; ++chain)
      add_up(chain, parts.data() + chain * chunks.n * d, part_values.data() + chain * chunks.n);
  }
}

double value_of(const Network& network, const Rows& rows, const float* position) {
  const Kernel& k = kernel();
  const Chunks chunks(rows.count);
  float* s = network_scratch.floats(k.scratch_size(network));
  k.load(network, position, false, s);
  double value = 0.0;
  for (int64_t first = 0; first < rows.count; first += chunks.rows)
    value += k.value(network, rows, first, std::min(first + chunks.rows, rows.count), s);
  return value;
}

using Sizes = ffi::Span<const int64_t>;
using Numbers = ffi::Span<const double>;
using Floats = ffi::Buffer<ffi::F32>;
using Ints = ffi::Buffer<ffi::S32>;
using FloatsOut = ffi::Result<Floats>;

Network network_of(const int64_t* sizes, int64_t n_sizes, const int64_t* image, int64_t n_image, int64_t activation,
                   int64_t head, float floor) {
  return {sizes, n_sizes - 1, Activation(activation), Head(head), image, n_image ? (n_image - 3) / 4 : 0,
          floor, nullptr,     0};
}

Network network_of(const Sizes& sizes, const Sizes& image, int64_t activation, int64_t head, float floor,
                   const Numbers& numbers) {
  Network network = network_of(sizes.begin(), int64_t(sizes.size()), image.begin(), int64_t(image.size()), activation,
                               head, floor);
  network.numbers = numbers.begin();
  network.n_numbers = int64_t(numbers.size());
  return network;
}

// A network whose outputs or slopes are asked for.
Network headless(const Sizes& sizes, const Sizes& image, int64_t activation) {
  return network_of(sizes, image, activation, no_head, 0.0f, Numbers());
}

// Features of a row.
int64_t inputs_of(const Network& network) {
  return network.n_stages ? network.image[0] * network.image[1] * network.image[2] : network.sizes[0];
}

// What the convolutions must make of an image for the dense layers; 0 if they cannot be.
int64_t result_of(const Network& network) {
  if (!network.n_stages) return network.sizes[0];
  int64_t height = network.image[0], width = network.image[1], channels = network.image[2];
  if (network.n_stages > max_stages || channels < 1) return 0;
  for (int64_t k = 0; k < network.n_stages; ++k) {
    const int64_t* stage = network.image + 3 + 4 * k;
    const int64_t grown = 2 * stage[2] - stage[1] + 1;
    if (stage[0] < 1 || stage[1] < 1 || stage[2] < 0 || stage[3] < 1) return 0;
    height = (height + grown) / stage[3];
    width = (width + grown) / stage[3];
    channels = stage[0];
    if (height < 1 || width < 1) return 0;
  }
  return height * width * channels;
}

// Real rows among so many.
int64_t count_of(const Ints& count, int64_t slots) {
  return std::max<int64_t>(0, std::min<int64_t>(count.typed_data()[0], slots));
}

Rows rows_of(const Floats& x, const ffi::AnyBuffer& y, const Floats& weight, const Ints& count) {
  const int64_t stride = x.dimensions()[1], n = count_of(count, stride);
  return {x.typed_data(), stride, y.untyped_data(), weight.typed_data(), n, nullptr, nullptr, nullptr};
}

// Whether a head has as many outputs and numbers as it reads; see heads.hpp.
bool fits_head(const Network& network) {
  const int64_t n_outputs = network.sizes[network.n_layers], n = network.n_numbers;
  switch (network.head) {
    case Head::categorical:
      return n_outputs > 0;
    case Head::mixture:
      return n > 0 && n <= 8 && n_outputs == 3 * n;
    case Head::student_t:
      return n_outputs == 3;
    case Head::poisson:
      return n_outputs == 1 && n == 4;
    case Head::negative_binomial:
      return n_outputs == 2 && n == 7;
    case Head::ordinal:
      return n > 0 && n_outputs == n;
    default:
      return n_outputs == 2;
  }
}

ffi::Error check(const Network& network, const Floats& positions, const Floats& x) {
  if (network.n_layers < 1 || network.n_layers > max_layers) return ffi::Error::InvalidArgument("mile: layers");
  if (result_of(network) != network.sizes[0]) return ffi::Error::InvalidArgument("mile: convolutions");
  if (positions.dimensions().size() != 2 || positions.dimensions()[1] != dimension_of(network) ||
      x.dimensions()[0] != inputs_of(network))
    return ffi::Error::InvalidArgument("mile: the shapes of positions and x do not fit the network");
  return ffi::Error::Success();
}

ffi::Error check(const Network& network, const Floats& positions, const Floats& x, const ffi::AnyBuffer& y,
                 const Floats& weight) {
  if (auto error = check(network, positions, x); error.failure()) return error;
  if (network.head < Head::gaussian || network.head > Head::ordinal)
    return ffi::Error::InvalidArgument("mile: the kernel does not have the head of this likelihood");
  if (!fits_head(network)) return ffi::Error::InvalidArgument("mile: the outputs do not fit the head of the likelihood");
  const auto response = network.head == Head::categorical ? ffi::S32 : ffi::F32;
  if (y.element_type() != response || int64_t(y.element_count()) != x.dimensions()[1] ||
      int64_t(weight.element_count()) != x.dimensions()[1])
    return ffi::Error::InvalidArgument("mile: y and weight do not fit x and the likelihood");
  return ffi::Error::Success();
}

// The same on the arrays of a call; the values come back.
std::vector<double> gradients(const Network& network, const Rows& rows, const Floats& positions, FloatsOut& results,
                              ffi::ThreadPool* pool) {
  const int64_t chains = positions.dimensions()[0], d = positions.dimensions()[1];
  std::vector<const float*> from(chains);
  std::vector<float*> to(chains);
  std::vector<double> sums(chains);
  for (int64_t c = 0; c < chains; ++c) {
    from[c] = positions.typed_data() + c * d;
    to[c] = results->typed_data() + c * d;
  }
  gradients(network, rows, chains, from.data(), sums.data(), to.data(), pool, helpers.load());
  return sums;
}

ffi::Error value_and_grad(ffi::ThreadPool pool, Floats positions, Floats x, ffi::AnyBuffer y, Floats weight,
                          Ints count, FloatsOut values, FloatsOut results, Sizes sizes, Sizes image, int64_t activation,
                          int64_t head, float floor, Numbers numbers) {
  const Network network = network_of(sizes, image, activation, head, floor, numbers);
  const Rows rows = rows_of(x, y, weight, count);
  if (auto error = check(network, positions, x, y, weight); error.failure()) return error;
  const std::vector<double> sums = gradients(network, rows, positions, results, &pool);
  for (size_t c = 0; c < sums.size(); ++c) values->typed_data()[c] = float(sums[c]);
  return ffi::Error::Success();
}

ffi::Error value(ffi::ThreadPool pool, Floats positions, Floats x, ffi::AnyBuffer y, Floats weight, Ints count,
                 FloatsOut values, Sizes sizes, Sizes image, int64_t activation, int64_t head, float floor, Numbers numbers) {
  const Network network = network_of(sizes, image, activation, head, floor, numbers);
  const Rows rows = rows_of(x, y, weight, count);
  if (auto error = check(network, positions, x, y, weight); error.failure()) return error;
  const int64_t chains = positions.dimensions()[0], d = positions.dimensions()[1];
  for_each(chains, helpers.load(), &pool, [&](int64_t c) {
    values->typed_data()[c] = float(value_of(network, rows, positions.typed_data() + c * d));
  });
  return ffi::Error::Success();
}

// For likelihoods without a head: outputs [chain][output][row], whose log density and derivatives are JAX's, and back
// from the derivatives to the gradient. Padding has outputs of zero. What is kept between the two has room for
// `most_kept` floats of each chain or for nothing; then the way back computes it again.
ffi::Error check_outputs(const Network& network, const Floats& positions, const Floats& x, const Floats& outputs,
                         const Floats& kept) {
  if (auto error = check(network, positions, x); error.failure()) return error;
  const int64_t chains = positions.dimensions()[0], slots = x.dimensions()[1], n_kept = int64_t(kept.element_count());
  if (int64_t(outputs.element_count()) != chains * network.sizes[network.n_layers] * slots ||
      (n_kept && n_kept != chains * most_kept(network, slots)))
    return ffi::Error::InvalidArgument("mile: the outputs, or what is kept, do not fit network and x");
  return ffi::Error::Success();
}

ffi::Error forward(ffi::ThreadPool pool, Floats positions, Floats x, Ints count, FloatsOut outputs, FloatsOut kept,
                   Sizes sizes, Sizes image, int64_t activation) {
  const Network network = headless(sizes, image, activation);
  if (auto error = check_outputs(network, positions, x, *outputs, *kept); error.failure()) return error;
  const Kernel& k = kernel();
  const int64_t chains = positions.dimensions()[0], d = positions.dimensions()[1], stride = x.dimensions()[1];
  const int64_t n_outputs = sizes[network.n_layers], extra = std::min(helpers.load(), pool.num_threads());
  const Rows rows = {x.typed_data(), stride, nullptr, nullptr, count_of(count, stride), nullptr, nullptr, nullptr};
  const Chunks chunks(rows.count);
  const bool split = chains <= extra;  // fewer chains than threads: rows are spread too
  const int64_t each = split ? chunks.rows : rows.count, parts = split ? chunks.n : 1;
  std::memset(outputs->typed_data(), 0, outputs->size_bytes());
  for_each(chains * parts, extra, &pool, [&](int64_t item) {
    const int64_t chain = item / parts, first = item % parts * each;
    float* s = network_scratch.floats(k.scratch_size(network));
    k.load(network, positions.typed_data() + chain * d, false, s);
    k.forward(network, rows, first, std::min(first + each, rows.count), s,
              outputs->typed_data() + chain * n_outputs * stride,
              kept->element_count() ? kept->typed_data() + chain * most_kept(network, stride) : nullptr);
  });
  return ffi::Error::Success();
}

ffi::Error backward(ffi::ThreadPool pool, Floats positions, Floats slopes, Floats kept, Floats x, Ints count,
                    FloatsOut results, Sizes sizes, Sizes image, int64_t activation) {
  const Network network = headless(sizes, image, activation);
  if (auto error = check_outputs(network, positions, x, slopes, kept); error.failure()) return error;
  const int64_t stride = x.dimensions()[1], n = count_of(count, stride);
  const float* hidden = kept.element_count() ? kept.typed_data() : nullptr;
  const Rows rows = {x.typed_data(), stride, nullptr, nullptr, n, nullptr, slopes.typed_data(), hidden};
  gradients(network, rows, positions, results, &pool);
  return ffi::Error::Success();
}

// Weighted sums over rows of numbers [chain][row], in double precision and in order.
ffi::Error weighted_sum(Floats numbers, Floats weight, Ints count, FloatsOut sums) {
  const int64_t slots = int64_t(weight.element_count()), n = count_of(count, slots);
  const int64_t chains = int64_t(sums->element_count());
  if (int64_t(numbers.element_count()) != chains * slots)
    return ffi::Error::InvalidArgument("mile: numbers and weights do not fit together");
  const float* w = weight.typed_data();
  for (int64_t c = 0; c < chains; ++c) {
    const float* number = numbers.typed_data() + c * slots;
    double sum = 0.0;
    for (int64_t r = 0; r < n; ++r) sum += double(w[r]) * double(number[r]);
    sums->typed_data()[c] = float(sum);
  }
  return ffi::Error::Success();
}

// Minimal-norm coefficients, as in samplers/_mclmc.py.
constexpr double b1 = 0.1931833275037836, b2 = 1.0 - 2.0 * b1, a = 0.5;

struct Chain {
  const float *position, *velocity, *gradient;
  float logdensity;
  uint32_t key0, key1;
  float step_size, length;
  float *new_position, *new_velocity, *new_gradient, *new_logdensity, *energy_change;
  bool* finite;
};

// One step of samplers/_mclmc.py.
void step(const Network& network, const Rows& rows, const Prior& prior, const Chain& chain, ffi::ThreadPool* pool,
          int64_t extra) {
  const Kernel& k = kernel();
  const int64_t d = dimension_of(network), n = padded(d);
  // The gradient uses call_scratch for its parts, so the state has memory of its own.
  thread_local Scratch state_scratch;
  float* noise = state_scratch.floats(6 * n);
  float *second = noise + n, *q = second + n, *v = q + n, *g = v + n, *reverted = g + n;
  auto copy = [d, n](const float* from, float* to) {
    std::memcpy(to, from, d * sizeof(float));
    std::memset(to + d, 0, (n - d) * sizeof(float));
  };
  k.normal(chain.key0, chain.key1, 0, n, noise);
  k.normal(chain.key0, chain.key1, uint32_t(d), n, second);
  std::memset(noise + d, 0, (n - d) * sizeof(float));
  std::memset(second + d, 0, (n - d) * sizeof(float));
  copy(chain.position, q);
  copy(chain.velocity, v);
  copy(chain.gradient, g);
  const double h = chain.step_size, length = chain.length;
  double logdensity = 0.0;
  auto evaluate = [&] {
    gradients(network, rows, 1, &q, &logdensity, &g, pool, extra);
    logdensity += k.add_prior(n, prior, q, g);
  };
  k.refresh(n, d, h, length, noise, v);
  double kinetic = k.kick(n, d, b1 * h, g, v);
  k.drift(n, a * h, v, q);
  evaluate();
  kinetic += k.kick(n, d, b2 * h, g, v);
  k.drift(n, a * h, v, q);
  evaluate();
  kinetic += k.kick(n, d, b1 * h, g, v);
  k.refresh(n, d, h, length, second, v);
  const float change = float(kinetic - double(float(logdensity)) + double(chain.logdensity));
  const bool finite = std::isfinite(change * change) && std::isfinite(float(logdensity)) &&
                      std::isfinite(k.total(n, q) + k.total(n, v) + k.total(n, g));
  if (!finite) {
    std::memcpy(reverted, second, n * sizeof(float));
    k.normalize(n, reverted);
  }
  std::memcpy(chain.new_position, finite ? q : chain.position, d * sizeof(float));
  std::memcpy(chain.new_velocity, finite ? v : reverted, d * sizeof(float));
  std::memcpy(chain.new_gradient, finite ? g : chain.gradient, d * sizeof(float));
  *chain.new_logdensity = finite ? float(logdensity) : chain.logdensity;
  *chain.energy_change = finite ? change : 0.0f;
  *chain.finite = finite;
}

// Coefficients and blocks of a prior must be as many as the parameters ask for.
ffi::Error check(const Prior& prior, int64_t dimension) {
  int64_t size = 0;
  for (int64_t b = 0; b < prior.n_blocks; ++b) size += prior.blocks[3 * b + 1] * prior.blocks[3 * b + 2];
  const bool grouped = prior.family == Family::grouped;
  const bool fits = grouped ? size == dimension && prior.n_coefficients == 2
                            : prior.n_coefficients == padded(dimension) ||
                                  (prior.family == Family::normal && prior.n_coefficients == 1);
  return fits ? ffi::Error::Success() : ffi::Error::InvalidArgument("mile: the prior does not fit the parameters");
}

ffi::Error mclmc_step(ffi::ThreadPool pool, ffi::Buffer<ffi::U32> keys, Floats position, Floats velocity,
                      Floats logdensity, Floats gradient, Floats step_size, Floats length, Floats coefficients, Floats x,
                      ffi::AnyBuffer y, Floats weight, Ints count, FloatsOut new_position, FloatsOut new_velocity,
                      FloatsOut new_logdensity, FloatsOut new_gradient, FloatsOut energy_change,
                      ffi::Result<ffi::Buffer<ffi::PRED>> finite, Sizes sizes, Sizes image, int64_t activation,
                      int64_t head, float floor, Numbers numbers, int64_t family, double degrees, double power, Sizes blocks) {
  const Network network = network_of(sizes, image, activation, head, floor, numbers);
  const Rows rows = rows_of(x, y, weight, count);
  const Prior prior = {Family(family), coefficients.typed_data(), int64_t(coefficients.element_count()), degrees, power,
                       blocks.begin(), int64_t(blocks.size() / 3)};
  if (auto error = check(network, position, x, y, weight); error.failure()) return error;
  if (auto error = check(prior, position.dimensions()[1]); error.failure()) return error;
  const int64_t chains = position.dimensions()[0], d = position.dimensions()[1], extra = helpers.load();
  const bool split = chains <= extra;  // fewer chains than threads: rows are spread instead
  for_each(chains, split ? 0 : extra, &pool, [&](int64_t c) {
    const Chain chain = {position.typed_data() + c * d,
                         velocity.typed_data() + c * d,
                         gradient.typed_data() + c * d,
                         logdensity.typed_data()[c],
                         keys.typed_data()[2 * c],
                         keys.typed_data()[2 * c + 1],
                         step_size.typed_data()[c],
                         length.typed_data()[c],
                         new_position->typed_data() + c * d,
                         new_velocity->typed_data() + c * d,
                         new_gradient->typed_data() + c * d,
                         new_logdensity->typed_data() + c,
                         energy_change->typed_data() + c,
                         finite->typed_data() + c};
    step(network, rows, prior, chain, &pool, split ? extra : 0);
  });
  return ffi::Error::Success();
}

// Indices 0..n-1 in the order of `numbers` in [0, 1), which carry 23 random bits; ties keep their order. A radix sort:
// for the sizes of data sets it takes a tenth of the time of XLA's sort.
std::vector<int32_t> sorted_by(const float* numbers, int64_t n) {
  std::vector<uint32_t> keys = zeros<uint32_t>(n), other_keys = zeros<uint32_t>(n);
  std::vector<int32_t> order = zeros<int32_t>(n), other = zeros<int32_t>(n);
  for (int64_t k = 0; k < n; ++k) {
    keys[k] = uint32_t(std::max(0.0f, std::min(numbers[k], 1.0f)) * 8388608.0f);
    order[k] = int32_t(k);
  }
  for (int shift = 0; shift < 24; shift += 8) {
    int64_t starts[257] = {};
    for (int64_t k = 0; k < n; ++k) ++starts[((keys[k] >> shift) & 255) + 1];
    for (int b = 0; b < 256; ++b) starts[b + 1] += starts[b];
    for (int64_t k = 0; k < n; ++k) {
      const int64_t at = starts[(keys[k] >> shift) & 255]++;
      other_keys[at] = keys[k];
      other[at] = order[k];
    }
    keys.swap(other_keys);
    order.swap(other);
  }
  return order;
}

// One epoch of AdamW over mini-batches of rows in the order of random numbers, per member.
ffi::Error epoch(ffi::ThreadPool pool, Floats position, Floats first, Floats second, Ints steps, Floats factor, Floats shuffle,
                 Floats x, ffi::AnyBuffer y, Floats weight, Ints count, FloatsOut new_position, FloatsOut new_first,
                 FloatsOut new_second, Sizes sizes, Sizes image, int64_t activation, int64_t head, float floor, Numbers numbers,
                 int64_t batch_size, float learning_rate, float weight_decay, float decay_first, float decay_second, float epsilon) {
  const Network network = network_of(sizes, image, activation, head, floor, numbers);
  const Rows all = rows_of(x, y, weight, count);
  if (auto error = check(network, position, x, y, weight); error.failure()) return error;
  const int64_t members = position.dimensions()[0], d = position.dimensions()[1], n = padded(d);
  const int64_t slots = shuffle.dimensions()[1];
  if (slots < all.count || batch_size < 1) return ffi::Error::InvalidArgument("mile: too few random numbers");
  for_each(members, helpers.load(), &pool, [&](int64_t member) {
    const Kernel& k = kernel();
    const AdamW rule = {learning_rate * factor.typed_data()[member], weight_decay, decay_first, decay_second, epsilon};
    float* s = network_scratch.floats(k.scratch_size(network));
    float *p = call_scratch.floats(4 * n), *m = p + n, *v = m + n, *g = v + n;
    std::memset(p, 0, 4 * n * sizeof(float));
    std::memcpy(p, position.typed_data() + member * d, d * sizeof(float));
    std::memcpy(m, first.typed_data() + member * d, d * sizeof(float));
    std::memcpy(v, second.typed_data() + member * d, d * sizeof(float));
    Rows rows = all;
    std::vector<int32_t> order;
    if (batch_size < all.count) {  // a single batch holds all rows in any order
      order = sorted_by(shuffle.typed_data() + member * slots, all.count);
      rows.order = order.data();
    }
    int64_t step = steps.typed_data()[member];
    for (int64_t from = 0; from < all.count; from += batch_size) {
      const int64_t to = std::min(from + batch_size, all.count);
      double total = 0.0;
      for (int64_t r = from; r < to; ++r) total += all.weight[rows.order ? rows.order[r] : r];
      k.load(network, p, true, s);
      k.gradient(network, rows, from, to, s, g);
      k.adamw(n, rule, ++step, float(1.0 / std::max(total, 1.0)), g, p, m, v);
    }
    std::memcpy(new_position->typed_data() + member * d, p, d * sizeof(float));
    std::memcpy(new_first->typed_data() + member * d, m, d * sizeof(float));
    std::memcpy(new_second->typed_data() + member * d, v, d * sizeof(float));
  });
  return ffi::Error::Success();
}

// What both calls of attention are given; an empty error if it fits together.
ffi::Error attention_of(const Floats& tokens, const Floats& positions, const Ints& index, const Floats& weights,
                        int64_t heads, Attention& a) {
  if (tokens.dimensions().size() != 2 || positions.dimensions().size() != 2 || index.dimensions().size() != 2 ||
      heads < 1 || tokens.dimensions()[1] % (3 * heads) || positions.dimensions()[1] != tokens.dimensions()[1] ||
      positions.dimensions()[0] != index.dimensions()[1] || weights.element_count() != index.element_count() ||
      tokens.dimensions()[0] < 1)
    return ffi::Error::InvalidArgument("mile: the shapes of an attention do not fit together");
  a = {heads,
       tokens.dimensions()[1] / (3 * heads),
       index.dimensions()[0],
       index.dimensions()[1],
       tokens.dimensions()[0],
       tokens.typed_data(),
       positions.typed_data(),
       index.typed_data(),
       weights.typed_data()};
  return ffi::Error::Success();
}

// Heads are independent of each other, so threads change no bit.
ffi::Error attend(ffi::ThreadPool pool, Floats tokens, Floats positions, Ints index, Floats weights, FloatsOut pooled,
                  FloatsOut normalizer, FloatsOut attention, int64_t heads) {
  Attention a;
  if (auto error = attention_of(tokens, positions, index, weights, heads, a); error.failure()) return error;
  const Kernel& k = kernel();
  for_each(heads, helpers.load(), &pool, [&](int64_t head) {
    float* s = network_scratch.floats(k.attention_scratch(a));
    k.attend(a, head, s, pooled->typed_data(), normalizer->typed_data(), attention->typed_data());
  });
  return ffi::Error::Success();
}

ffi::Error attend_slopes(ffi::ThreadPool pool, Floats tokens, Floats positions, Ints index, Floats weights,
                         Floats normalizer, Floats attention, Floats slope, FloatsOut token_slopes,
                         FloatsOut position_slopes, int64_t heads) {
  Attention a;
  if (auto error = attention_of(tokens, positions, index, weights, heads, a); error.failure()) return error;
  const Kernel& k = kernel();
  std::memset(token_slopes->typed_data(), 0, token_slopes->size_bytes());
  std::memset(position_slopes->typed_data(), 0, position_slopes->size_bytes());
  for_each(heads, helpers.load(), &pool, [&](int64_t head) {
    float* s = network_scratch.floats(k.attention_scratch(a));
    k.attend_slopes(a, head, s, normalizer.typed_data(), attention.typed_data(), slope.typed_data(),
                    token_slopes->typed_data(), position_slopes->typed_data());
  });
  return ffi::Error::Success();
}

// A handler that throws nothing: XLA is written without exceptions.
template <class... Arguments>
auto guarded(ffi::Error (*handler)(Arguments...)) {
  return [handler](Arguments... arguments) {
    try {
      return handler(std::move(arguments)...);
    } catch (const OutOfMemory& error) {
      return ffi::Error(ffi::ErrorCode::kResourceExhausted, words_of(error));
    } catch (const std::bad_alloc&) {
      return ffi::Error(ffi::ErrorCode::kResourceExhausted, "mile: the native kernel has no memory left.");
    } catch (const std::exception& error) {
      return ffi::Error::Internal(error.what());
    }
  };
}

// What a plain function returns: 0, the bytes that it asked for and did not get, or -1 for any other error.
template <class F>
int64_t outcome(const F& f) {
  try {
    f();
    return 0;
  } catch (const OutOfMemory& error) {
    return error.bytes;
  } catch (...) {
    return -1;
  }
}

}  // namespace
}  // namespace mile

#define MILE_EXPORT extern "C" __attribute__((visibility("default")))
#define MILE_HEADLESS .Attr<mile::Sizes>("sizes").Attr<mile::Sizes>("image").Attr<int64_t>("activation")
#define MILE_NETWORK \
  MILE_HEADLESS.Attr<int64_t>("head").Attr<float>("floor").Attr<mile::Numbers>("numbers")
#define MILE_ROWS .Arg<mile::Floats>().Arg<ffi::AnyBuffer>().Arg<mile::Floats>().Arg<mile::Ints>()

MILE_EXPORT XLA_FFI_Error* mile_value_and_grad(XLA_FFI_CallFrame* frame) {
  static auto* handler = ffi::Ffi::Bind()
                             .Ctx<ffi::ThreadPool>()
                             .Arg<mile::Floats>() MILE_ROWS.Ret<mile::Floats>()
                             .Ret<mile::Floats>() MILE_NETWORK.To(mile::guarded(mile::value_and_grad))
                             .release();
  return handler->Call(frame);
}

MILE_EXPORT XLA_FFI_Error* mile_value(XLA_FFI_CallFrame* frame) {
  static auto* handler = ffi::Ffi::Bind()
                             .Ctx<ffi::ThreadPool>()
                             .Arg<mile::Floats>() MILE_ROWS
                             .Ret<mile::Floats>() MILE_NETWORK.To(mile::guarded(mile::value))
                             .release();
  return handler->Call(frame);
}

MILE_EXPORT XLA_FFI_Error* mile_forward(XLA_FFI_CallFrame* frame) {
  static auto* handler = ffi::Ffi::Bind()
                             .Ctx<ffi::ThreadPool>()
                             .Arg<mile::Floats>()
                             .Arg<mile::Floats>()
                             .Arg<mile::Ints>()
                             .Ret<mile::Floats>()
                             .Ret<mile::Floats>() MILE_HEADLESS.To(mile::guarded(mile::forward))
                             .release();
  return handler->Call(frame);
}

MILE_EXPORT XLA_FFI_Error* mile_backward(XLA_FFI_CallFrame* frame) {
  static auto* handler = ffi::Ffi::Bind()
                             .Ctx<ffi::ThreadPool>()
                             .Arg<mile::Floats>()
                             .Arg<mile::Floats>()
                             .Arg<mile::Floats>()
                             .Arg<mile::Floats>()
                             .Arg<mile::Ints>()
                             .Ret<mile::Floats>() MILE_HEADLESS.To(mile::guarded(mile::backward))
                             .release();
  return handler->Call(frame);
}

MILE_EXPORT XLA_FFI_Error* mile_weighted_sum(XLA_FFI_CallFrame* frame) {
  static auto* handler = ffi::Ffi::Bind()
                             .Arg<mile::Floats>()
                             .Arg<mile::Floats>()
                             .Arg<mile::Ints>()
                             .Ret<mile::Floats>()
                             .To(mile::guarded(mile::weighted_sum))
                             .release();
  return handler->Call(frame);
}

MILE_EXPORT XLA_FFI_Error* mile_mclmc_step(XLA_FFI_CallFrame* frame) {
  static auto* handler = ffi::Ffi::Bind()
                             .Ctx<ffi::ThreadPool>()
                             .Arg<ffi::Buffer<ffi::U32>>()
                             .Arg<mile::Floats>()
                             .Arg<mile::Floats>()
                             .Arg<mile::Floats>()
                             .Arg<mile::Floats>()
                             .Arg<mile::Floats>()
                             .Arg<mile::Floats>()
                             .Arg<mile::Floats>() MILE_ROWS.Ret<mile::Floats>()
                             .Ret<mile::Floats>()
                             .Ret<mile::Floats>()
                             .Ret<mile::Floats>()
                             .Ret<mile::Floats>()
                             .Ret<ffi::Buffer<ffi::PRED>>() MILE_NETWORK.Attr<int64_t>("family")
                             .Attr<double>("degrees")
                             .Attr<double>("power")
                             .Attr<mile::Sizes>("blocks")
                             .To(mile::guarded(mile::mclmc_step))
                             .release();
  return handler->Call(frame);
}

MILE_EXPORT XLA_FFI_Error* mile_epoch(XLA_FFI_CallFrame* frame) {
  static auto* handler = ffi::Ffi::Bind()
                             .Ctx<ffi::ThreadPool>()
                             .Arg<mile::Floats>()
                             .Arg<mile::Floats>()
                             .Arg<mile::Floats>()
                             .Arg<mile::Ints>()
                             .Arg<mile::Floats>()
                             .Arg<mile::Floats>() MILE_ROWS.Ret<mile::Floats>()
                             .Ret<mile::Floats>()
                             .Ret<mile::Floats>() MILE_NETWORK.Attr<int64_t>("batch_size")
                             .Attr<float>("learning_rate")
                             .Attr<float>("weight_decay")
                             .Attr<float>("decay_first")
                             .Attr<float>("decay_second")
                             .Attr<float>("epsilon")
                             .To(mile::guarded(mile::epoch))
                             .release();
  return handler->Call(frame);
}

MILE_EXPORT XLA_FFI_Error* mile_attend(XLA_FFI_CallFrame* frame) {
  static auto* handler = ffi::Ffi::Bind()
                             .Ctx<ffi::ThreadPool>()
                             .Arg<mile::Floats>()
                             .Arg<mile::Floats>()
                             .Arg<mile::Ints>()
                             .Arg<mile::Floats>()
                             .Ret<mile::Floats>()
                             .Ret<mile::Floats>()
                             .Ret<mile::Floats>()
                             .Attr<int64_t>("heads")
                             .To(mile::guarded(mile::attend))
                             .release();
  return handler->Call(frame);
}

MILE_EXPORT XLA_FFI_Error* mile_attend_slopes(XLA_FFI_CallFrame* frame) {
  static auto* handler = ffi::Ffi::Bind()
                             .Ctx<ffi::ThreadPool>()
                             .Arg<mile::Floats>()
                             .Arg<mile::Floats>()
                             .Arg<mile::Ints>()
                             .Arg<mile::Floats>()
                             .Arg<mile::Floats>()
                             .Arg<mile::Floats>()
                             .Arg<mile::Floats>()
                             .Ret<mile::Floats>()
                             .Ret<mile::Floats>()
                             .Attr<int64_t>("heads")
                             .To(mile::guarded(mile::attend_slopes))
                             .release();
  return handler->Call(frame);
}

// Use the kernel of this name; null means the best for this processor, and so does one that it cannot run. Returns the
// name of the one in use.
MILE_EXPORT const char* mile_use_kernel(const char* name) {
  using namespace mile;
  const Kernel* wanted = best_kernel();
  if (name && !std::strcmp(name, "portable")) wanted = kernel_portable();
#if defined(__x86_64__)
  if (name && !std::strcmp(name, "avx2") && has_avx2()) wanted = kernel_avx2();
#endif
  chosen.store(wanted);
  return wanted->name;
}

MILE_EXPORT const char* mile_kernel_name() { return mile::kernel().name; }

MILE_EXPORT void mile_use_helpers(int64_t n) { mile::helpers.store(n); }

// Outputs [draw][output][rows] of every draw for all rows of x [feature][rows].
MILE_EXPORT int64_t mile_outputs(const int64_t* sizes, int64_t n_sizes, const int64_t* image, int64_t n_image,
                                 int64_t activation, const float* draws, int64_t n_draws, const float* x,
                                 int64_t n_rows, float* out) {
  using namespace mile;
  const Network network = network_of(sizes, n_sizes, image, n_image, activation, no_head, 0.0f);
  const Kernel& k = kernel();
  const Rows rows = {x, n_rows, nullptr, nullptr, n_rows, nullptr, nullptr, nullptr};
  const int64_t d = dimension_of(network);
  return outcome([&] {
    float* s = network_scratch.floats(k.scratch_size(network));
    k.outputs(network, draws, n_draws, d, rows, s, out);
  });
}

// Sums over draws of what each says about all rows of x [feature][rows]; see Kernel::summarize.
MILE_EXPORT int64_t mile_summarize(const int64_t* sizes, int64_t n_sizes, const int64_t* image, int64_t n_image,
                                   int64_t activation, int64_t head, const float* floor, const float* draws,
                                   int64_t n_draws, const float* x, int64_t n_rows, const float* center, double* sums) {
  using namespace mile;
  const Network network = network_of(sizes, n_sizes, image, n_image, activation, head, *floor);
  const Kernel& k = kernel();
  const Rows rows = {x, n_rows, nullptr, nullptr, n_rows, nullptr, nullptr, nullptr};
  const int64_t d = dimension_of(network);
  return outcome([&] {
    float* s = network_scratch.floats(k.scratch_size(network));
    k.summarize(network, draws, n_draws, d, rows, s, center, sums);
  });
}

// Distribution function and density of the mixtures [row][component] at y [row]. Components of equal weight stand
// together: where each group ends, and its share of the mixture. A single group has the share 1, which changes no bit.
MILE_EXPORT int64_t mile_mixture(const double* location, const double* precision, int64_t n_rows, int64_t n_components,
                                 const int64_t* ends, const double* shares, int64_t n_groups, const double* y,
                                 double* cdf, double* density) {
  return mile::outcome([&] {
    for (int64_t r = 0; r < n_rows; ++r) {
      const double *at = location + r * n_components, *inverse = precision + r * n_components;
      cdf[r] = density[r] = 0.0;
      for (int64_t group = 0, from = 0; group < n_groups; from = ends[group++]) {
        double below, height;
        mile::kernel().mixture(ends[group] - from, at + from, inverse + from, y[r], &below, &height);
        cdf[r] += shares[group] * below;
        density[r] += shares[group] * height;
      }
    }
  });
}

// The same of mixtures whose components have weights [row][component] that add up to one in each row.
MILE_EXPORT int64_t mile_weighted_mixture(const double* location, const double* precision, const double* weight,
                                          int64_t n_rows, int64_t n_components, const double* y, double* cdf,
                                          double* density) {
  return mile::outcome([&] {
    for (int64_t r = 0, at = 0; r < n_rows; ++r, at += n_components)
      mile::kernel().weighted_mixture(n_components, location + at, precision + at, weight + at, y[r], cdf + r,
                                      density + r);
  });
}

// Moments [3][row] (mean, mean variance, variance of the means) and quantiles [level][row] of the normal mixtures of at
// most 96 rows x [feature][rows], for a Gaussian head. The draws lie in pieces; groups of equal weight are as above.
// `normal_levels` are the same quantiles of the standard normal distribution, from which the search begins.
MILE_EXPORT int64_t mile_predict(const int64_t* sizes, int64_t n_sizes, const int64_t* image, int64_t n_image,
                                 int64_t activation, int64_t head, const float* floor, const int64_t* pieces,
                                 const int64_t* counts, int64_t n_pieces, const float* x, int64_t n_rows,
                                 const int64_t* ends, const double* shares, int64_t n_groups, const double* levels,
                                 const double* normal_levels, int64_t n_levels, double* moments, double* quantiles) {
  using namespace mile;
  const Network network = network_of(sizes, n_sizes, image, n_image, activation, head, *floor);
  const Kernel& k = kernel();
  const Rows rows = {x, n_rows, nullptr, nullptr, n_rows, nullptr, nullptr, nullptr};
  const int64_t d = dimension_of(network), n_draws = ends[n_groups - 1];
  return outcome([&] {
    const int64_t stride = (n_draws + 31) / 16 * 16;  // one cache line more: rows do not share sets of a cache
    const int64_t guess_size = n_draws / 32 + n_groups + 1;
    float* s = network_scratch.floats(k.scratch_size(network));
    float* location = call_scratch.floats(2 * n_rows * stride + 2 * guess_size);
    float *precision = location + n_rows * stride, *guess = precision + n_rows * stride;
    for (int64_t piece = 0, first = 0; piece < n_pieces; first += counts[piece++])
      k.normals(network, reinterpret_cast<const float*>(pieces[piece]), counts[piece], d, rows, s, stride,
                location + first, precision + first);
    std::vector<int64_t> guess_ends = zeros<int64_t>(n_groups);
    for (int64_t row = 0; row < n_rows; ++row)
      k.summarize_row(location + row * stride, precision + row * stride, ends, shares, n_groups, levels, normal_levels,
                      n_levels, guess, guess_size, guess_ends.data(), moments + row, quantiles + row, n_rows);
  });
}
