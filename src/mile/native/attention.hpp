// Attention averaged over positions, for one head: networks/_pooling.py on vectors of keys. A text is worked on as a
// whole, its positions without weight left out, so that everything stays in the nearest cache.
#pragma once
#include "kernel.hpp"
#include "vectors.hpp"

namespace mile::MILE_ISA {

constexpr int queries = 4;   // worked on side by side
constexpr int features = 4;  // of a head, likewise; heads are filled up with zeros to a multiple
constexpr int key_vectors = 3;

// One text of one head in scratch memory.
struct Text {
  int64_t n = 0;    // positions that count
  int64_t columns;  // those, filled up to whole vectors
  int64_t width;    // of the head, filled up
  int32_t* place;   // of each position that counts
  float* query;     // [position][feature], to a multiple of `queries`
  float* key;       // [feature][position]
  float* value;     // [position][feature]
  float* query_slope;
  float* key_slope;
  float* mask;       // [position]: zero, and far below where there is none
  float* scores;     // [queries][position]
  float* attention;  // [position]; backward: derivative of the attention to a key
};

MILE_INLINE int64_t up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

static int64_t attention_scratch(const Attention& a) {
  const int64_t positions = up(a.context, 16), width = up(a.width, features);
  return positions * (5 * width + 3 + queries) + 64;
}

static Text lay_out(const Attention& a, float* s) {
  const int64_t positions = up(a.context, 16), width = up(a.width, features);
  Text text;
  text.width = width;
  auto take = [&s](int64_t n) {
    float* here = s;
    s += n;
    return here;
  };
  text.query = take(positions * width);
  text.key = take(positions * width);
  text.value = take(positions * width);
  text.query_slope = take(positions * width);
  text.key_slope = take(positions * width);
  text.mask = take(positions);
  text.scores = take(queries * positions);
  text.attention = take(positions);
  text.place = reinterpret_cast<int32_t*>(take(positions));
  return text;
}

MILE_INLINE int64_t row_of(const Attention& a, int64_t text, int64_t place) {
  const int64_t id = a.index[text * a.context + place];
  return id < 0 ? 0 : id < a.n_tokens ? id : a.n_tokens - 1;
}

// Gather queries, keys and values of a text; return false if no position counts.
static bool gather(const Attention& a, int64_t which, int64_t head, Text& text) {
  const float* weights = a.weights + which * a.context;
  text.n = 0;
  for (int64_t p = 0; p < a.context; ++p)
    if (weights[p] > 0.0f) text.place[text.n++] = int32_t(p);
  if (!text.n) return false;
  text.columns = up(text.n, lanes);
  const int64_t total = a.heads * a.width, rows = up(text.n, queries);
  for (int64_t j = 0; j < rows; ++j) {
    const bool real = j < text.n;
    const int64_t token = real ? row_of(a, which, text.place[j]) : 0, place = real ? text.place[j] : 0;
    const float* t = a.tokens + token * 3 * total + head * a.width;
    const float* p = a.positions + place * 3 * total + head * a.width;
    for (int64_t c = 0; c < text.width; ++c) {
      const bool used = real && c < a.width;
      text.query[j * text.width + c] = used ? t[c] + p[c] : 0.0f;
      if (real) text.key[c * text.columns + j] = used ? t[total + c] + p[total + c] : 0.0f;
      text.value[j * text.width + c] = used ? t[2 * total + c] + p[2 * total + c] : 0.0f;
    }
  }
  for (int64_t c = 0; c < text.width; ++c)
    for (int64_t j = text.n; j < text.columns; ++j) text.key[c * text.columns + j] = 0.0f;
  for (int64_t j = 0; j < text.columns; ++j) text.mask[j] = j < text.n ? 0.0f : -1e30f;
  return true;
}

template <int N>
MILE_INLINE void score_block(const Text& text, const float* query, int64_t v) {
  V acc[queries][N];
  for (int i = 0; i < queries; ++i)
    for (int k = 0; k < N; ++k) acc[i][k] = load(text.mask + v + k * lanes);
  for (int64_t c = 0; c < text.width; ++c) {
    V key[N];
#pragma GCC unroll 3
    for (int k = 0; k < N; ++k) key[k] = load(text.key + c * text.columns + v + k * lanes);
#pragma GCC unroll 4
    for (int i = 0; i < queries; ++i) {
      V q = fill(query[i * text.width + c]);
#pragma GCC unroll 3
      for (int k = 0; k < N; ++k) acc[i][k] += q * key[k];
    }
  }
  for (int i = 0; i < queries; ++i)
    for (int k = 0; k < N; ++k) store(text.scores + i * text.columns + v + k * lanes, acc[i][k]);
}

// Scores of `queries` queries from the i-th on.
static void score(const Text& text, int64_t i) {
  const float* query = text.query + i * text.width;
  int64_t v = 0;
  for (; v + key_vectors * lanes <= text.columns; v += key_vectors * lanes) score_block<key_vectors>(text, query, v);
  for (; v < text.columns; v += lanes) score_block<1>(text, query, v);
}

MILE_INLINE float largest_of(V v) {
  float s[lanes];
  std::memcpy(s, &v, sizeof v);
  float best = s[0];
  for (int k = 1; k < lanes; ++k) best = best > s[k] ? best : s[k];
  return best;
}

static void attend(const Attention& a, int64_t head, float* s, float* pooled, float* normalizer, float* attention) {
  Text text = lay_out(a, s);
  for (int64_t which = 0; which < a.n_texts; ++which) {
    float* to = pooled + (which * a.heads + head) * a.width;
    const int64_t kept = (which * a.heads + head) * a.context;
    std::memset(to, 0, a.width * sizeof(float));
    std::memset(normalizer + kept, 0, a.context * sizeof(float));
    std::memset(attention + kept, 0, a.context * sizeof(float));
    if (!gather(a, which, head, text)) continue;
    const float* weights = a.weights + which * a.context;
    std::memset(text.attention, 0, text.columns * sizeof(float));
    for (int64_t i = 0; i < text.n; i += queries) {
      score(text, i);
      for (int q = 0; q < queries && i + q < text.n; ++q) {
        float* row = text.scores + q * text.columns;
        V best = load(row);
        for (int64_t j = lanes; j < text.columns; j += lanes) {
          V z = load(row + j);
          best = best > z ? best : z;
        }
        const float highest = largest_of(best);
        V total = {};
        for (int64_t j = 0; j < text.columns; j += lanes) {
          V e = exp(load(row + j) - highest);
          total += e;
          store(row + j, e);
        }
        const float normal = sum(total), share = weights[text.place[i + q]] / normal;
        for (int64_t j = 0; j < text.columns; j += lanes)
          store(text.attention + j, load(text.attention + j) + share * load(row + j));
        normalizer[kept + text.place[i + q]] = highest + __builtin_logf(normal);
      }
    }
    for (int64_t j = 0; j < text.n; ++j) {
      attention[kept + text.place[j]] = text.attention[j];
      for (int64_t c = 0; c < a.width; ++c) to[c] += text.attention[j] * text.value[j * text.width + c];
    }
  }
}

// query_slope[i..][c..] = sum_j d[i][j] key[c][j], for `queries` times `features` numbers.
MILE_INLINE void query_slopes(const Text& text, int64_t i, int64_t c) {
  constexpr int pairs = queries * features;
  V acc[pairs] = {};
  for (int64_t j = 0; j < text.columns; j += lanes) {
    V d[queries];
#pragma GCC unroll 4
    for (int q = 0; q < queries; ++q) d[q] = load(text.scores + q * text.columns + j);
#pragma GCC unroll 4
    for (int k = 0; k < features; ++k) {
      V key = load(text.key + (c + k) * text.columns + j);
#pragma GCC unroll 4
      for (int q = 0; q < queries; ++q) acc[q * features + k] += d[q] * key;
    }
  }
  float total[pairs];
  for (int first = 0; first < pairs; first += lanes) {
    V group[lanes];
    for (int k = 0; k < lanes; ++k) group[k] = acc[first + k];
    store(total + first, sums(group));
  }
  for (int q = 0; q < queries; ++q)
    for (int k = 0; k < features; ++k) text.query_slope[(i + q) * text.width + c + k] = total[q * features + k];
}

// key_slope[c..][j] += sum_i query[i][c] d[i][j]
MILE_INLINE void key_slopes(const Text& text, int64_t i, int64_t c) {
  for (int64_t j = 0; j < text.columns; j += lanes) {
    V d[queries];
#pragma GCC unroll 4
    for (int q = 0; q < queries; ++q) d[q] = load(text.scores + q * text.columns + j);
#pragma GCC unroll 4
    for (int k = 0; k < features; ++k) {
      float* to = text.key_slope + (c + k) * text.columns + j;
      V total = load(to);
#pragma GCC unroll 4
      for (int q = 0; q < queries; ++q) total += text.query[(i + q) * text.width + c + k] * d[q];
      store(to, total);
    }
  }
}

static void attend_slopes(const Attention& a, int64_t head, float* s, const float* normalizer, const float* attention,
                          const float* slope, float* token_slopes, float* position_slopes) {
  Text text = lay_out(a, s);
  const int64_t total = a.heads * a.width;
  for (int64_t which = 0; which < a.n_texts; ++which) {
    if (!gather(a, which, head, text)) continue;
    const float* g = slope + (which * a.heads + head) * a.width;
    const float* weights = a.weights + which * a.context;
    const int64_t kept = (which * a.heads + head) * a.context;
    std::memset(text.attention, 0, text.columns * sizeof(float));
    for (int64_t j = 0; j < text.n; ++j)
      for (int64_t c = 0; c < a.width; ++c) text.attention[j] += text.value[j * text.width + c] * g[c];
    std::memset(text.key_slope, 0, text.width * text.columns * sizeof(float));
    for (int64_t i = 0; i < text.n; i += queries) {
      score(text, i);
      for (int q = 0; q < queries; ++q) {
        float* row = text.scores + q * text.columns;
        if (i + q >= text.n) {
          std::memset(row, 0, text.columns * sizeof(float));
          continue;
        }
        const float normal = normalizer[kept + text.place[i + q]];
        V mean = {};
        for (int64_t j = 0; j < text.columns; j += lanes) {
          V p = exp(load(row + j) - normal);
          mean += p * load(text.attention + j);
          store(row + j, p);
        }
        const float center = sum(mean), weight = weights[text.place[i + q]];
        for (int64_t j = 0; j < text.columns; j += lanes)
          store(row + j, weight * load(row + j) * (load(text.attention + j) - center));
      }
      for (int64_t c = 0; c < text.width; c += features) {
        query_slopes(text, i, c);
        key_slopes(text, i, c);
      }
    }
    for (int64_t j = 0; j < text.n; ++j) {
      float* t = token_slopes + row_of(a, which, text.place[j]) * 3 * total + head * a.width;
      float* p = position_slopes + int64_t(text.place[j]) * 3 * total + head * a.width;
      const float share = attention[kept + text.place[j]];
      for (int64_t c = 0; c < a.width; ++c) {
        const float of_query = text.query_slope[j * text.width + c], of_key = text.key_slope[c * text.columns + j];
        t[c] += of_query;
        t[total + c] += of_key;
        t[2 * total + c] += share * g[c];
        p[c] += of_query;
        p[total + c] += of_key;
        p[2 * total + c] += share * g[c];
      }
    }
  }
}

}  // namespace mile::MILE_ISA
