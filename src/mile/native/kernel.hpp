// What the instruction-set-independent part of the library (handlers.cpp) asks of a kernel. kernel.cpp is compiled
// once per instruction set; each build offers one table of functions.
#pragma once
#include <cstddef>
#include <cstdint>

namespace mile {

constexpr int max_layers = 64;
constexpr int max_stages = 16;

enum class Activation : int64_t { relu, tanh, gelu, silu, sigmoid };
enum class Head : int64_t {
  gaussian,
  categorical,
  bounded_gaussian,
  mixture,
  student_t,
  poisson,
  negative_binomial,
  ordinal
};
enum class Family : int64_t { normal, laplace, student_t, grouped };
enum class Grouping : int64_t { normal, whole, rows, columns };

// A perceptron: layer l maps sizes[l] to sizes[l + 1] features. Its parameters are one vector, per layer the weights
// [in][out] in row-major order, then the bias. It may have convolutions in front of it, whose result is its input.
struct Network {
  const int64_t* sizes;
  int64_t n_layers;
  Activation activation;
  Head head;
  const int64_t* image;  // height, width, channels; per stage filters, kernel, padding, pool
  int64_t n_stages;
  float floor;  // of standard deviations, for heads with the bounded link
  const double* numbers;  // what else a head must know; see heads.hpp
  int64_t n_numbers;
};

// Data as the posterior holds it: x is [feature][stride], of which the first `count` columns are rows. y is float or,
// for the categorical head, int32. `order` chooses rows (a mini-batch); null means as they come. `slopes`, if any, are
// the derivatives of the outputs, [output][stride]: then nobody asks for y, weight and the head. `kept`, if not null, is
// what `Kernel::forward` has kept of the same rows.
struct Rows {
  const float* x;
  int64_t stride;
  const void* y;
  const float* weight;
  int64_t count;
  const int32_t* order;
  const float *slopes, *kept;
};

// Floats that `Kernel::forward` keeps of so many rows, for the longest tiles and the widest vectors. Convolutions have
// so many that they are computed again.
inline int64_t most_kept(const Network& network, int64_t n_rows) {
  int64_t of_row = 0;
  for (int64_t l = 1; l < network.n_layers; ++l) of_row += (network.sizes[l] + 15) / 16 * 16;
  const bool keeps_slope = network.activation == Activation::gelu || network.activation == Activation::silu;
  return network.n_stages ? 0 : (n_rows + 95) / 96 * 96 * of_row * (keeps_slope ? 2 : 1);
}

// What attention works on; see networks/_pooling.py. Queries, keys and values lie side by side, each with all heads.
struct Attention {
  int64_t heads, width;         // of one head
  int64_t n_texts, context;
  int64_t n_tokens;
  const float* tokens;          // [token][3 * heads * width]
  const float* positions;       // [position][3 * heads * width]
  const int32_t* index;         // [text][position]: a row of `tokens`
  const float* weights;         // [text][position]
};

// See priors.hpp for what the coefficients of each family are: one, two, or one for each parameter, padded with zeros to
// a multiple of 16. Grouped: each block of the parameters, in order, is a matrix; what shares a scale, rows, columns.
struct Prior {
  Family family;
  const float* coefficients;
  int64_t n_coefficients;
  double degrees, power;
  const int64_t* blocks;
  int64_t n_blocks;
};

struct AdamW {
  float learning_rate, weight_decay, decay_first, decay_second, epsilon;
};

struct Kernel {
  const char* name;
  int64_t lanes;
  // Floats of scratch memory that all other functions need for a network, aligned to 64 bytes.
  int64_t (*scratch_size)(const Network&);
  // Prepare the parameters in scratch memory; once for any number of calls of the next two, or, without `backward`, of
  // the second.
  void (*load)(const Network&, const float* position, bool backward, float* scratch);
  // Weighted log likelihood of rows [first, last) and its gradient, which overwrites `gradient`. With slopes the value is
  // zero, and the gradient is that of any function of the outputs with these derivatives.
  double (*gradient)(const Network&, const Rows&, int64_t first, int64_t last, float* scratch, float* gradient);
  double (*value)(const Network&, const Rows&, int64_t first, int64_t last, float* scratch);
  // Outputs [output][stride] of rows [first, last), after `load`; `first` is a multiple of 96. If `kept` is not null,
  // what the way back needs of the hidden layers goes there: at most `most_kept` floats for all rows.
  void (*forward)(const Network&, const Rows&, int64_t first, int64_t last, float* scratch, float* out, float* kept);
  // Outputs [draw][output][row] of all rows under draws [draw][dimension].
  void (*outputs)(const Network&, const float* draws, int64_t n_draws, int64_t dimension, const Rows&, float* scratch,
                  float* out);
  // Add what each draw says about all rows to `sums` [number][row]. Gaussian: location minus `center`, its square,
  // variance. Categorical: probability of each class, entropy.
  void (*summarize)(const Network&, const float* draws, int64_t n_draws, int64_t dimension, const Rows&, float* scratch,
                    const float* center, double* sums);
  // One head of attention and of its derivatives; see attention.hpp. Results are [text][head][width] and, twice,
  // [text][head][position]. Derivatives are added to.
  int64_t (*attention_scratch)(const Attention&);
  void (*attend)(const Attention&, int64_t head, float* scratch, float* pooled, float* normalizer, float* attention);
  void (*attend_slopes)(const Attention&, int64_t head, float* scratch, const float* normalizer, const float* attention,
                        const float* slope, float* token_slopes, float* position_slopes);
  // See mixture.hpp.
  void (*mixture)(int64_t n, const double* location, const double* precision, double y, double* cdf, double* density);
  void (*weighted_mixture)(int64_t n, const double* location, const double* precision, const double* weight, double y,
                           double* cdf, double* density);
  // Locations and precisions [row][stride] of the normal distributions of at most 96 rows under draws.
  void (*normals)(const Network&, const float* draws, int64_t n_draws, int64_t dimension, const Rows&, float* scratch,
                  int64_t stride, float* location, float* precision);
  // Moments and quantiles of one row, each `stride` apart; see quantiles.hpp.
  void (*summarize_row)(const float* location, const float* precision, const int64_t* ends, const double* shares,
                        int64_t n_groups, const double* levels, const double* normal_levels, int64_t n_levels,
                        float* guess, int64_t guess_size, int64_t* guess_ends, double* moments, double* quantiles,
                        int64_t stride);
  // See dynamics.hpp and priors.hpp; n is a length padded with zeros to a multiple of `lanes`.
  void (*normal)(uint32_t key0, uint32_t key1, uint32_t first, int64_t n, float* out);
  void (*normalize)(int64_t n, float* v);
  void (*refresh)(int64_t n, int64_t dimension, double step_size, double length, const float* noise, float* velocity);
  double (*kick)(int64_t n, int64_t dimension, double duration, const float* gradient, float* velocity);
  void (*drift)(int64_t n, double distance, const float* velocity, float* position);
  double (*add_prior)(int64_t n, const Prior&, const float* position, float* gradient);
  double (*total)(int64_t n, const float* v);
  void (*adamw)(int64_t n, const AdamW&, int64_t step, float scale, const float* gradient, float* position,
                float* first, float* second);
};

const Kernel* kernel_portable();
#if defined(__x86_64__)
const Kernel* kernel_avx2();
const Kernel* kernel_avx512();
#endif

}  // namespace mile
