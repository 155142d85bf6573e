// Memory that the library asks for. Where there is none, the error carries the size; whoever faces another language,
// XLA or Python, catches it and says so.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

namespace mile {

class OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(int64_t bytes) : bytes(bytes) {}
  const char* what() const noexcept override { return "mile: out of memory"; }
  const int64_t bytes;
};

inline std::string words_of(const OutOfMemory& error) {
  const double megabytes = double(error.bytes) / 1e6;
  char size[64];
  std::snprintf(size, sizeof size, megabytes < 100.0 ? "%.1f MB" : "%.1f GB",
                megabytes < 100.0 ? megabytes : megabytes / 1e3);
  return std::string("mile: the native kernel needs ") + size + " for one piece of work, and the system has not that " +
         "much memory left. Free some, or use a smaller network, fewer chains at a time or fewer rows.";
}

// A vector of n numbers, zero.
template <class T>
std::vector<T> zeros(int64_t n) {
  try {
    return std::vector<T>(size_t(n));
  } catch (const std::bad_alloc&) {
    throw OutOfMemory(n * int64_t(sizeof(T)));
  } catch (const std::length_error&) {
    throw OutOfMemory(n * int64_t(sizeof(T)));
  }
}

// Memory of one thread that grows to the largest use and is then kept: no allocation per call.
class Scratch {
 public:
  ~Scratch() { std::free(data_); }
  float* floats(int64_t n) {
    if (n > size_) {
      std::free(data_);
      const size_t bytes = (size_t(n) * sizeof(float) + 63) / 64 * 64;
      size_ = 0;
      data_ = static_cast<float*>(std::aligned_alloc(64, bytes));
      if (!data_) throw OutOfMemory(int64_t(bytes));
      size_ = n;
    }
    return data_;
  }

 private:
  float* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace mile
