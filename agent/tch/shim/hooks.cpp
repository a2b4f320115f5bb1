// Gradient hooks: callbacks after a gradient was added to a leaf, or when the gradient of any tensor is computed.
#include "guard.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace {

using Call = void (*)(void *data, const at::Tensor *tensor);
using Drop = void (*)(void *data);

// The caller's function and its data. The data is dropped with the last shared pointer to the callback.
class Callback {
public:
  Callback(Call call, void *data, Drop drop) : call_(call), data_(data), drop_(drop) {}
  Callback(const Callback &) = delete;
  Callback &operator=(const Callback &) = delete;
  ~Callback() { drop_(data_); }
  void operator()(const at::Tensor *tensor) const { call_(data_, tensor); }

private:
  Call call_;
  void *data_;
  Drop drop_;
};

// Shares the post-accumulate slot of a leaf, which holds only one hook, and keeps the previous hook.
class SharedSlot final : public torch::autograd::PostAccumulateGradHook {
public:
  explicit SharedSlot(std::unique_ptr<PostAccumulateGradHook> before) : before_(std::move(before)) {}

  void operator()(const torch::autograd::Variable &tensor) override {
    if (before_) {
      (*before_)(tensor);
    }
    // Iterates over a copy: a callback may remove callbacks, including itself.
    for (const auto &callback : snapshot()) {
      (*callback)(&tensor);
    }
  }

  void add(std::shared_ptr<Callback> callback) {
    std::lock_guard<std::mutex> lock(mutex_);
    callbacks_.push_back(std::move(callback));
  }

  void remove(const Callback *callback) {
    std::shared_ptr<Callback> kept; // dropped outside the lock
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = std::find_if(callbacks_.begin(), callbacks_.end(),
                                    [&](const auto &held) { return held.get() == callback; });
    if (found != callbacks_.end()) {
      kept = std::move(*found);
      callbacks_.erase(found);
    }
  }

private:
  std::vector<std::shared_ptr<Callback>> snapshot() {
    std::lock_guard<std::mutex> lock(mutex_);
    return callbacks_;
  }

  std::mutex mutex_;
  std::unique_ptr<PostAccumulateGradHook> before_;
  std::vector<std::shared_ptr<Callback>> callbacks_;
};

} // namespace

extern "C" {

// Calls `call` with the leaf each time a gradient was added to it. `token` identifies the hook for removal.
// Always takes ownership of `data`: on failure it is dropped here.
char *tmn_hook_accumulated(const at::Tensor *leaf, Call call, void *data, Drop drop, const void **token) {
  return trainmon::guarded([&] {
    auto callback = std::make_shared<Callback>(call, data, drop);
    TORCH_CHECK(leaf->defined() && leaf->is_leaf() && leaf->requires_grad(),
                "only a leaf tensor that requires a gradient can be hooked");
    auto &slot = torch::autograd::impl::post_acc_grad_hooks(*leaf);
    auto *shared = dynamic_cast<SharedSlot *>(slot.get());
    if (shared == nullptr) {
      auto fresh = std::make_unique<SharedSlot>(std::move(slot));
      shared = fresh.get();
      torch::autograd::impl::set_post_acc_grad_hooks(*leaf, std::move(fresh));
    }
    *token = callback.get();
    shared->add(std::move(callback));
  });
}

char *tmn_unhook_accumulated(const at::Tensor *leaf, const void *token) {
  return trainmon::guarded([&] {
    auto &slot = torch::autograd::impl::post_acc_grad_hooks(*leaf);
    if (auto *shared = dynamic_cast<SharedSlot *>(slot.get())) {
      shared->remove(static_cast<const Callback *>(token));
    }
  });
}

// Calls `call` with the whole gradient of `tensor` when it is computed. The hook lives as long as the tensor's part of
// the graph; `position` identifies it for removal. Always takes ownership of `data`.
char *tmn_hook_gradient(const at::Tensor *tensor, Call call, void *data, Drop drop, std::uint32_t *position) {
  return trainmon::guarded([&] {
    auto callback = std::make_shared<Callback>(call, data, drop);
    *position = tensor->register_hook([callback](const at::Tensor &grad) { (*callback)(&grad); });
  });
}

char *tmn_unhook_gradient(const at::Tensor *tensor, std::uint32_t position) {
  return trainmon::guarded([&] { tensor->remove_hook(position); });
}

// Calls `call` with null after the backward pass that is running now. Always takes ownership of `data`.
char *tmn_after_backward(Call call, void *data, Drop drop) {
  return trainmon::guarded([&] {
    auto callback = std::make_shared<Callback>(call, data, drop);
    torch::autograd::Engine::get_default_engine().queue_callback([callback] { (*callback)(nullptr); });
  });
}

} // extern "C"
