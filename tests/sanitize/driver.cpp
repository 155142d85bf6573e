// Calls the kernel with random plans whose buffers are exactly as large as they must be, for sanitizers to watch, and
// compares a part of the results with a plain computation. Scratch memory begins as NaN: what nobody wrote must not count.
// Usage: driver plans SEED COUNT | driver threads SEED COUNT
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <thread>

#include "handlers.cpp"
#include "reference.hpp"

namespace {

using mile::Kernel;
using mile::Network;
using mile::Rows;
using mile::padded;

constexpr double tolerance = 2e-4;            // relative to the norm; errors of float32
constexpr double most_compared = 3e5;         // products of a plan that is compared
int64_t n_compared = 0, n_failed = 0;

struct Random {
  std::mt19937_64 bits;
  int64_t between(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(bits); }
  bool chance(double share) { return std::uniform_real_distribution<>(0.0, 1.0)(bits) < share; }
  float normal(double scale = 1.0) { return float(std::normal_distribution<>(0.0, scale)(bits)); }
};

// Exactly n numbers on the heap, so that the one behind them is not ours; aligned as XLA and numpy align.
template <class T>
struct Exact {
  T* data = nullptr;
  int64_t n;
  explicit Exact(int64_t n) : n(n) {
    if (posix_memalign(reinterpret_cast<void**>(&data), 64, std::max<int64_t>(n, 1) * sizeof(T))) std::abort();
    std::memset(data, 0xff, n * sizeof(T));  // NaN
  }
  Exact(const Exact&) = delete;
  ~Exact() { std::free(data); }
  T& operator[](int64_t k) { return data[k]; }
  void fill(T value) { std::fill(data, data + n, value); }
};
using Floats32 = Exact<float>;

void normals(Random& random, Floats32& to, double scale = 1.0) {
  for (int64_t k = 0; k < to.n; ++k) to[k] = random.normal(scale);
}

struct Plan {
  std::vector<int64_t> sizes, image;
  Network network;
  int64_t dimension, n_inputs, stride, count, n_ordered;
  double work = 0.0;  // products for all rows

  explicit Plan(Random& random) {
    network = {};
    network.activation = mile::Activation(random.between(0, 4));
    network.head = mile::Head(random.between(0, 2));
    network.floor = float(std::exp(random.normal()) * 1e-2);
    auto width = [&] {
      const double kind = random.between(0, 9);
      return kind < 6 ? random.between(1, 20) : kind < 8 ? 16 * random.between(1, 4) : random.between(60, 200);
    };
    const int64_t n_layers = random.between(1, random.chance(0.05) ? 8 : 4);
    const int64_t n_outputs = network.head == mile::Head::categorical ? random.between(2, 20) : 2;
    int64_t first = random.chance(0.04) ? random.between(100, 700) : random.between(1, 40);
    if (random.chance(0.2)) first = plan_stages(random);
    sizes = {first};
    for (int64_t l = 1; l < n_layers; ++l) sizes.push_back(width());
    sizes.push_back(n_outputs);
    network.sizes = sizes.data();
    network.n_layers = n_layers;
    network.image = image.data();
    network.n_stages = image.empty() ? 0 : int64_t(image.size() - 3) / 4;
    dimension = mile::dimension_of(network);
    n_inputs = mile::inputs_of(network);
    count = random.chance(0.15) ? 1 : random.chance(0.05) ? 0 : random.between(1, random.chance(0.05) ? 700 : 110);
    stride = count + (random.chance(0.5) ? 0 : random.between(1, 20));
    if (!stride) stride = 1;
    n_ordered = count && random.chance(0.3) ? random.between(1, count) : 0;
    work = double(dimension) * double(count) * (image.empty() ? 1.0 : 60.0);
  }

  // Convolutions that leave something; return how many numbers they leave.
  int64_t plan_stages(Random& random) {
    int64_t height = random.between(1, 9), width = random.between(1, 9);
    image = {height, width, random.between(1, 3)};
    const int64_t wanted = random.between(1, 2);
    int64_t channels = image[2];
    for (int64_t k = 0; k < wanted; ++k) {
      const int64_t padding = random.between(0, 2), largest = std::min(height, width) + 2 * padding;
      const int64_t kernel = random.between(1, std::min<int64_t>(largest, 5));
      const int64_t left = std::min(height, width) + 2 * padding - kernel + 1;
      const int64_t pool = random.between(1, std::min<int64_t>(left, 3)), filters = random.between(1, 10);
      image.insert(image.end(), {filters, kernel, padding, pool});
      height = (height + 2 * padding - kernel + 1) / pool;
      width = (width + 2 * padding - kernel + 1) / pool;
      channels = filters;
    }
    return height * width * channels;
  }

  std::string text() const {
    std::string found = "sizes";
    for (int64_t size : sizes) found += " " + std::to_string(size);
    if (!image.empty()) found += ", image";
    for (int64_t size : image) found += " " + std::to_string(size);
    return found + ", activation " + std::to_string(int64_t(network.activation)) + ", head " +
           std::to_string(int64_t(network.head)) + ", " + std::to_string(count) + " rows of " + std::to_string(stride) +
           ", ordered " + std::to_string(n_ordered);
  }
};

// Data of a plan.
struct Data {
  Floats32 position, x, weight, y, slopes;
  Exact<int32_t> labels, order;
  Rows rows;

  Data(Random& random, const Plan& plan)
      : position(plan.dimension), x(plan.n_inputs * plan.stride), weight(plan.stride), y(plan.stride),
        slopes(plan.sizes.back() * plan.stride), labels(plan.stride), order(plan.n_ordered) {
    normals(random, position, 0.5);
    normals(random, x);
    normals(random, y);
    normals(random, slopes);
    for (int64_t r = 0; r < plan.stride; ++r) {
      weight[r] = random.chance(0.1) ? 0.0f : std::fabs(random.normal());
      labels[r] = int32_t(random.between(0, plan.sizes.back() - 1));
    }
    for (int64_t r = 0; r < plan.n_ordered; ++r) order[r] = int32_t(random.between(0, plan.count - 1));
    const bool is_class = plan.network.head == mile::Head::categorical;
    rows = {x.data, plan.stride, is_class ? static_cast<const void*>(labels.data) : y.data, weight.data, plan.count,
            plan.n_ordered ? order.data : nullptr, nullptr, nullptr};
  }
};

void report(const Kernel& kernel, const Plan& plan, const char* what, double away) {
  ++n_failed;
  std::fprintf(stderr, "%s, %s: %s is %.3g from the plain computation\n", kernel.name, plan.text().c_str(), what, away);
}

template <class Get>
void compare(const Kernel& kernel, const Plan& plan, const char* what, const reference::Numbers& expected,
             const Get& found) {
  double difference = 0.0, norm = 1e-3;
  for (size_t k = 0; k < expected.size(); ++k) {
    const double away = double(found(int64_t(k))) - expected[k];
    difference += away * away;
    norm += expected[k] * expected[k];
  }
  ++n_compared;
  const double away = std::sqrt(difference / norm);
  if (!(away <= tolerance)) report(kernel, plan, what, away);
}

// All functions of a network on one plan.
void try_network(Random& random, const Kernel& kernel, const Plan& plan, Data& data) {
  const Network& network = plan.network;
  const int64_t n_rows = plan.n_ordered ? plan.n_ordered : plan.count, n_outputs = plan.sizes.back();
  const int64_t first = random.chance(0.5) ? 0 : random.between(0, n_rows), last = random.between(first, n_rows);
  const bool compared = plan.work <= most_compared;
  Floats32 scratch(kernel.scratch_size(network)), gradient(plan.dimension);
  kernel.load(network, data.position.data, true, scratch.data);
  const double value = kernel.gradient(network, data.rows, first, last, scratch.data, gradient.data);
  const double alone = kernel.value(network, data.rows, first, last, scratch.data);
  if (compared) {
    const auto plain =
        reference::evaluate(network, data.rows, first, last, data.position.data, plan.dimension, true);
    compare(kernel, plan, "the value", {plain.value}, [&](int64_t) { return value; });
    compare(kernel, plan, "the value alone", {plain.value}, [&](int64_t) { return alone; });
    compare(kernel, plan, "the gradient", plain.gradient, [&](int64_t k) { return gradient[k]; });
  }
  if (plan.n_ordered) return;
  // Outputs, what is kept of them, and the way back from their derivatives.
  Floats32 outputs(n_outputs * plan.stride), kept(mile::most_kept(network, plan.stride)), fresh(scratch.n);
  kernel.load(network, data.position.data, true, fresh.data);
  kernel.forward(network, data.rows, 0, plan.count, fresh.data, outputs.data, kept.n ? kept.data : nullptr);
  Rows with_slopes = data.rows;
  with_slopes.slopes = data.slopes.data, with_slopes.y = nullptr, with_slopes.weight = nullptr;
  with_slopes.kept = kept.n ? kept.data : nullptr;
  kernel.gradient(network, with_slopes, 0, plan.count, fresh.data, gradient.data);
  const auto plain =
      compared ? reference::evaluate(network, with_slopes, 0, plan.count, data.position.data, plan.dimension, false)
               : reference::Result();
  if (compared) {
    compare(kernel, plan, "the way back", plain.gradient, [&](int64_t k) { return gradient[k]; });
    for (int64_t o = 0; o < n_outputs; ++o) {
      reference::Numbers expected(plan.count);
      for (int64_t r = 0; r < plan.count; ++r) expected[r] = plain.outputs[r][o];
      compare(kernel, plan, "an output", expected, [&](int64_t r) { return outputs[o * plan.stride + r]; });
    }
  }
  // Predictions: rows lie without padding there.
  const int64_t n_draws = random.between(1, 3);
  Floats32 draws(n_draws * plan.dimension), x(plan.n_inputs * plan.count), found(n_draws * n_outputs * plan.count);
  normals(random, draws, 0.5);
  for (int64_t i = 0; i < plan.n_inputs; ++i)
    std::memcpy(x.data + i * plan.count, data.x.data + i * plan.stride, plan.count * sizeof(float));
  const Rows bare = {x.data, plan.count, nullptr, nullptr, plan.count, nullptr, nullptr, nullptr};
  Floats32 others(scratch.n), center(plan.count);
  kernel.outputs(network, draws.data, n_draws, plan.dimension, bare, others.data, found.data);
  const int64_t n_sums = network.head == mile::Head::categorical ? n_outputs + 1 : 3;
  Exact<double> sums(n_sums * plan.count);
  sums.fill(0.0), center.fill(0.25f);
  kernel.summarize(network, draws.data, n_draws, plan.dimension, bare, others.data, center.data, sums.data);
  if (!compared) return;
  for (int64_t draw = 0; draw < n_draws; ++draw) {
    const auto one = reference::evaluate(network, bare, 0, plan.count, draws.data + draw * plan.dimension,
                                         plan.dimension, false);
    for (int64_t o = 0; o < n_outputs; ++o) {
      reference::Numbers expected(plan.count);
      for (int64_t r = 0; r < plan.count; ++r) expected[r] = one.outputs[r][o];
      compare(kernel, plan, "a prediction", expected,
              [&](int64_t r) { return found[(draw * n_outputs + o) * plan.count + r]; });
    }
  }
  for (int64_t k = 0; k < sums.n; ++k)
    if (std::isnan(sums[k])) report(kernel, plan, "a sum of predictions", sums[k]);
}

// The vectors of a step, padded as they must be.
void try_vectors(Random& random, const Kernel& kernel, const Plan& plan, Data& data) {
  const int64_t d = plan.dimension, n = padded(d);
  Floats32 noise(n), v(n), q(n), g(n), first(n), second(n), coefficients(n);
  kernel.normal(uint32_t(random.bits()), uint32_t(random.bits()), uint32_t(random.bits()), n, noise.data);
  auto take = [&](Floats32& to, double scale) {
    to.fill(0.0f);
    for (int64_t k = 0; k < d; ++k) to[k] = random.normal(scale);
  };
  std::fill(noise.data + d, noise.data + n, 0.0f);
  take(v, 1.0), take(q, 1.0), take(g, 10.0), take(first, 0.1), take(second, 0.1);
  for (int64_t k = 0; k < n; ++k) second[k] = std::fabs(second[k]), coefficients[k] = k < d ? 0.5f : 0.0f;
  kernel.normalize(n, v.data);
  kernel.refresh(n, d, 0.1, 3.0, noise.data, v.data);
  const double change = d > 1 ? kernel.kick(n, d, 0.1, g.data, v.data) : 0.0;
  kernel.drift(n, 0.1, v.data, q.data);
  const mile::AdamW rule = {1e-3f, 1e-3f, 0.9f, 0.999f, 1e-8f};
  kernel.adamw(n, rule, random.between(1, 1000), 0.01f, g.data, q.data, first.data, second.data);
  std::vector<int64_t> blocks;
  int64_t at = 0;
  for (size_t l = 0; l + 1 < plan.sizes.size() && plan.image.empty(); ++l) {
    blocks.insert(blocks.end(), {random.between(0, 3), plan.sizes[l], plan.sizes[l + 1], 0, 1, plan.sizes[l + 1]});
    at += (plan.sizes[l] + 1) * plan.sizes[l + 1];
  }
  if (blocks.empty()) blocks = {1, 1, d};
  Floats32 one(1), two(2);
  one.fill(0.7f), two.fill(0.3f);
  const mile::Prior priors[] = {
      {mile::Family::normal, one.data, 1, 0.0, 1.0, nullptr, 0},
      {mile::Family::normal, coefficients.data, n, 0.0, 1.0, nullptr, 0},
      {mile::Family::laplace, coefficients.data, n, 0.0, 1.0, nullptr, 0},
      {mile::Family::student_t, coefficients.data, n, 4.0, 1.0, nullptr, 0},
      {mile::Family::grouped, two.data, 2, 3.0, 1.0, blocks.data(), int64_t(blocks.size() / 3)},
  };
  for (const mile::Prior& prior : priors) {
    const double value = kernel.add_prior(n, prior, q.data, g.data);
    // A prior without groups falls away from zero; one with groups does too.
    if (!(value <= 0.0)) report(kernel, plan, "a prior", value);
  }
  if (!std::isfinite(change + kernel.total(n, q.data))) report(kernel, plan, "a step", change);
  (void)data;
}

void try_attention(Random& random, const Kernel& kernel) {
  mile::Attention a = {};
  a.heads = random.between(1, 3), a.width = random.between(1, 12);
  a.n_texts = random.between(0, 4), a.context = random.between(1, 70), a.n_tokens = random.between(1, 30);
  const int64_t total = 3 * a.heads * a.width, places = a.n_texts * a.heads * a.context;
  Floats32 tokens(a.n_tokens * total), positions(a.context * total), weights(a.n_texts * a.context);
  Exact<int32_t> index(a.n_texts * a.context);
  normals(random, tokens), normals(random, positions);
  for (int64_t k = 0; k < index.n; ++k) {
    index[k] = int32_t(random.between(-2, a.n_tokens + 2));  // beyond both ends too: they are clamped
    weights[k] = random.chance(0.3) ? 0.0f : 1.0f / float(a.context);
  }
  a.tokens = tokens.data, a.positions = positions.data, a.index = index.data, a.weights = weights.data;
  Floats32 pooled(a.n_texts * a.heads * a.width), normalizer(places), attention(places), slope(pooled.n);
  Floats32 token_slopes(tokens.n), position_slopes(positions.n);
  normals(random, slope);
  token_slopes.fill(0.0f), position_slopes.fill(0.0f);
  for (int64_t head = 0; head < a.heads; ++head) {
    Floats32 scratch(kernel.attention_scratch(a));
    kernel.attend(a, head, scratch.data, pooled.data, normalizer.data, attention.data);
    Floats32 other(scratch.n);
    kernel.attend_slopes(a, head, other.data, normalizer.data, attention.data, slope.data, token_slopes.data,
                         position_slopes.data);
  }
  double sum = 0.0;
  for (int64_t k = 0; k < pooled.n; ++k) sum += pooled[k];
  for (int64_t k = 0; k < token_slopes.n; ++k) sum += token_slopes[k];
  if (!std::isfinite(sum)) {
    ++n_failed;
    std::fprintf(stderr, "%s: attention is not finite\n", kernel.name);
  }
}

void try_mixture(Random& random, const Kernel& kernel) {
  const int64_t n = random.between(1, 70);
  const bool is_weighted = random.between(0, 1);
  Exact<double> location(n), precision(n), weight(n);
  double total = 0.0;
  for (int64_t k = 0; k < n; ++k) {
    location[k] = random.normal(), precision[k] = std::exp(random.normal());
    total += weight[k] = is_weighted ? std::exp(random.normal(3.0)) : 1.0;
  }
  for (int64_t k = 0; k < n; ++k) weight[k] /= total;
  const double y = random.normal(3.0);
  double cdf, density, wanted_cdf = 0.0, wanted_density = 0.0;
  if (is_weighted)
    kernel.weighted_mixture(n, location.data, precision.data, weight.data, y, &cdf, &density);
  else
    kernel.mixture(n, location.data, precision.data, y, &cdf, &density);
  for (int64_t k = 0; k < n; ++k) {
    const double z = (y - location[k]) * precision[k];
    wanted_cdf += weight[k] * 0.5 * std::erfc(-z * std::sqrt(0.5));
    wanted_density += weight[k] * precision[k] * std::exp(-0.5 * z * z) * 0.3989422804014327;
  }
  ++n_compared;
  if (!(std::fabs(cdf - wanted_cdf) < 1e-12 && std::fabs(density - wanted_density) < 1e-10)) {
    ++n_failed;
    std::fprintf(stderr, "%s: a mixture of %lld is wrong\n", kernel.name, static_cast<long long>(n));
  }
}

// A pool of threads in the place of XLA's, behind the same functions.
class Pool {
 public:
  explicit Pool(int n) {
    for (int k = 0; k < n; ++k) threads_.emplace_back([this] { work(); });
  }
  ~Pool() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  int64_t size() const { return int64_t(threads_.size()); }
  void add(std::function<void()> task) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
  }

 private:
  void work() {
    for (;;) {
      std::function<void()> task;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [this] { return closing_ || !tasks_.empty(); });
        if (tasks_.empty()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool closing_ = false;
  std::vector<std::thread> threads_;
};

Pool* shared_pool;

XLA_FFI_Error* schedule(XLA_FFI_ThreadPool_Schedule_Args* args) {
  shared_pool->add([task = args->task, data = args->data] { task(data); });
  return nullptr;
}

XLA_FFI_Error* count_threads(XLA_FFI_ThreadPool_NumThreads_Args* args) {
  *args->num_threads = shared_pool->size();
  return nullptr;
}

// The same gradients by one thread and by several, to the bit; and several callers at once.
void try_threads(Random& random, ffi::ThreadPool* pool, const Plan& plan, Data& data) {
  const int64_t chains = random.between(1, 5), d = plan.dimension;
  Floats32 positions(chains * d), alone(chains * d), together(chains * d);
  normals(random, positions, 0.5);
  std::vector<const float*> from(chains);
  std::vector<float*> to(chains), other(chains);
  std::vector<double> values(chains), others(chains);
  for (int64_t c = 0; c < chains; ++c) {
    from[c] = positions.data + c * d, to[c] = alone.data + c * d, other[c] = together.data + c * d;
  }
  Rows rows = data.rows;
  rows.order = nullptr;
  mile::gradients(plan.network, rows, chains, from.data(), values.data(), to.data(), nullptr, 0);
  mile::gradients(plan.network, rows, chains, from.data(), others.data(), other.data(), pool, random.between(1, 4));
  if (std::memcmp(alone.data, together.data, alone.n * sizeof(float)) || values != others)
    report(mile::kernel(), plan, "a gradient by several threads", 0.0);
  const int64_t n_outputs = plan.sizes.back();
  Floats32 x(plan.n_inputs * plan.count);
  normals(random, x);
  std::vector<std::thread> callers;
  for (int k = 0; k < 3; ++k)
    callers.emplace_back([&] {
      Floats32 out(chains * n_outputs * plan.count);
      mile_use_helpers(3);
      mile_outputs(plan.sizes.data(), int64_t(plan.sizes.size()), plan.image.data(), int64_t(plan.image.size()),
                   int64_t(plan.network.activation), positions.data, chains, x.data, plan.count, out.data);
    });
  for (std::thread& caller : callers) caller.join();
}

// One item of several throws: the error arrives once and nothing is left running.
void try_errors(ffi::ThreadPool* pool) {
  for (int64_t bad = 0; bad < 20; ++bad) {
    bool caught = false;
    try {
      mile::for_each(20, 3, pool, [&](int64_t item) {
        if (item == bad) throw mile::OutOfMemory(item);
      });
    } catch (const mile::OutOfMemory& error) {
      caught = error.bytes == bad;
    }
    if (!caught) ++n_failed;
  }
}

void try_order(Random& random) {
  const int64_t n = random.between(0, 600);
  Floats32 numbers(n);
  for (int64_t k = 0; k < n; ++k) numbers[k] = float(random.between(0, 8388607)) / 8388608.0f;
  const std::vector<int32_t> order = mile::sorted_by(numbers.data, n);
  std::vector<bool> seen(n);
  for (int64_t k = 0; k < n; ++k) {
    seen[order[k]] = true;
    if (k && numbers[order[k - 1]] > numbers[order[k]]) ++n_failed;
  }
  if (std::count(seen.begin(), seen.end(), true) != n) ++n_failed;
}

std::vector<const Kernel*> kernels_here() {
  std::vector<const Kernel*> found = {mile::kernel_portable()};
#if defined(__x86_64__)
  if (mile::has_avx2()) found.push_back(mile::kernel_avx2());
  if (__builtin_cpu_supports("avx512f")) found.push_back(mile::kernel_avx512());
#endif
  return found;
}

}  // namespace

int main(int n_arguments, char** arguments) {
  if (n_arguments != 4) return 2;
  const bool with_threads = !std::strcmp(arguments[1], "threads");
  const int64_t seed = std::atoll(arguments[2]), count = std::atoll(arguments[3]);
  Pool pool(3);
  shared_pool = &pool;
  XLA_FFI_Api api = {};
  api.XLA_FFI_ThreadPool_Schedule = schedule;
  api.XLA_FFI_ThreadPool_NumThreads = count_threads;
  ffi::DiagnosticEngine diagnostic;
  ffi::ThreadPool threads = *ffi::CtxDecoding<ffi::ThreadPool>::Decode(&api, nullptr, diagnostic);
  const auto kernels = kernels_here();
  for (int64_t number = 0; number < count; ++number) {
    Random random = {std::mt19937_64(uint64_t(seed * 1000003 + number))};
    const Plan plan(random);
    Data data(random, plan);
    const Kernel& kernel = *kernels[number % kernels.size()];
    mile_use_kernel(kernel.name);
    if (with_threads) {
      try_threads(random, &threads, plan, data);
      if (number % 50 == 0) try_errors(&threads);
      continue;
    }
    try_network(random, kernel, plan, data);
    try_vectors(random, kernel, plan, data);
    try_attention(random, kernel);
    try_mixture(random, kernel);
    if (number % 10 == 0) try_order(random), try_threads(random, &threads, plan, data);
  }
  std::printf("%lld plans, %lld comparisons, %lld failures\n", static_cast<long long>(count),
              static_cast<long long>(n_compared), static_cast<long long>(n_failed));
  return n_failed ? 1 : 0;
}
