// SPDX-License-Identifier: MIT
// Objects that live until the process ends. Streams, events and the like are named by threads that
// CUDA does not order; counting their users would order them and so hide races from
// ThreadSanitizer. They are small, and reachable, so that no leak is reported.
#pragma once

#include <atomic>

namespace ddprun::doubles {

class Kept {
 public:
  Kept() = default;
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;
  virtual ~Kept() = default;

 protected:
  /// Relaxed, as nobody follows the list.
  void keep() { next_ = newest_.exchange(this, std::memory_order_relaxed); }

 private:
  static inline std::atomic<Kept*> newest_{nullptr};
  Kept* next_ = nullptr;
};

/// Makes an object that is never destroyed.
template <class T>
struct Keeper final : T {
  template <class... Arguments>
  explicit Keeper(Arguments&&... arguments) : T(static_cast<Arguments&&>(arguments)...) {
    this->keep();
  }
};

template <class T, class... Arguments>
T* make_kept(Arguments&&... arguments) {
  return new Keeper<T>(static_cast<Arguments&&>(arguments)...);
}

}  // namespace ddprun::doubles
