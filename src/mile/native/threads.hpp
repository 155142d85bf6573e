// Work spread over the threads of XLA's pool.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <thread>

#include "xla/ffi/api/ffi.h"

namespace mile {

// Call f(item) for every item, on this thread and on up to `extra` others. A task that is never started is not waited
// for, so calls cannot block each other however few threads there are. If an item throws, those not yet begun are left
// out, and when no thread is at work any more the first error is thrown here: on a thread of the pool it would end the
// process.
template <class F>
void for_each(int64_t items, int64_t extra, xla::ffi::ThreadPool* pool, const F& f) {
  extra = pool ? std::min({extra, items - 1, pool->num_threads()}) : 0;
  if (extra <= 0) {
    for (int64_t item = 0; item < items; ++item) f(item);
    return;
  }
  struct Shared {
    std::atomic<int64_t> next{0}, done{0};
    std::atomic<bool> failed{false};
    std::exception_ptr error;  // written once, before its item counts as done
  };
  auto shared = std::make_shared<Shared>();
  auto work = [items, shared, &f] {
    for (int64_t item; (item = shared->next.fetch_add(1)) < items;) {
      try {
        if (!shared->failed.load(std::memory_order_relaxed)) f(item);
      } catch (...) {
        if (!shared->failed.exchange(true)) shared->error = std::current_exception();
      }
      shared->done.fetch_add(1, std::memory_order_release);
    }
  };
  try {
    for (int64_t k = 0; k < extra; ++k) pool->Schedule([work] { work(); });
  } catch (const std::bad_alloc&) {
    // No memory for a task: fewer threads do the work. Leaving now would take `f` away from those that have begun.
  }
  work();
  while (shared->done.load(std::memory_order_acquire) < items) std::this_thread::yield();
  if (shared->error) std::rethrow_exception(shared->error);
}

}  // namespace mile
