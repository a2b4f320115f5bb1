// Plain functions for torch::optim: create, add, step, options, and the state that tch hides.
#include "optimizer.h"

#include "guard.h"

#include <ATen/ops/full_like.h>

namespace trainmon {
namespace {

template <class Kind> class TypedHandle final : public Handle {
public:
  explicit TypedHandle(const Options &options)
      : optimizer_(std::vector<at::Tensor>{}, Kind::to_torch(options)) {}

  torch::optim::Optimizer &optimizer() override { return optimizer_; }

  void add(const at::Tensor &parameter, std::size_t group) override {
    auto &groups = optimizer_.param_groups();
    while (groups.size() <= group) {
      groups.emplace_back(std::vector<at::Tensor>{}, optimizer_.defaults().clone());
    }
    auto state = std::make_unique<typename Kind::State>();
    Kind::begin(*state, parameter, options_of(group));
    groups[group].params().push_back(parameter);
    if (has_early_state()) {
      optimizer_.state()[parameter.unsafeGetTensorImpl()] = std::move(state);
    }
  }

  void read_options(std::size_t group, Options &options) override {
    auto &torch = options_of(group);
    options = Options{};
    options.lr = torch.lr();
    options.weight_decay = torch.weight_decay();
    Kind::from_torch(torch, options);
  }

  void write_options(std::size_t group, const Options &options) override {
    options_of(group) = Kind::to_torch(options);
  }

  at::Tensor *moment(const at::Tensor &parameter, Moment moment, bool create) override {
    auto *state = state_of(parameter, create);
    return state == nullptr ? nullptr : Kind::slot(*state, moment);
  }

  std::int64_t *step_count(const at::Tensor &parameter, bool create) override {
    auto *state = state_of(parameter, create);
    return state == nullptr ? nullptr : Kind::step(*state);
  }

private:
  // The other kinds create a parameter's state at its first step, and treat an existing state as already initialised.
  static constexpr bool has_early_state() { return std::is_same_v<Kind, Adagrad>; }

  typename Kind::TorchOptions &options_of(std::size_t group) {
    auto &groups = optimizer_.param_groups();
    auto &options = group < groups.size() ? groups[group].options() : optimizer_.defaults();
    return static_cast<typename Kind::TorchOptions &>(options);
  }

  typename Kind::State *state_of(const at::Tensor &parameter, bool create) {
    auto &states = optimizer_.state();
    void *key = parameter.unsafeGetTensorImpl();
    auto found = states.find(key);
    if (found == states.end()) {
      if (!create) {
        return nullptr;
      }
      found = states.emplace(key, std::make_unique<typename Kind::State>()).first;
    }
    return static_cast<typename Kind::State *>(found->second.get());
  }

  typename Kind::Optimizer optimizer_;
};

Handle *make(std::uint32_t kind, const Options &options) {
  switch (kind) {
  case 0:
    return new TypedHandle<Adam>(options);
  case 1:
    return new TypedHandle<AdamW>(options);
  case 2:
    return new TypedHandle<Sgd>(options);
  case 3:
    return new TypedHandle<RmsProp>(options);
  case 4:
    return new TypedHandle<Adagrad>(options);
  default:
    TORCH_CHECK(false, "unknown optimizer kind ", kind);
  }
}

} // namespace
} // namespace trainmon

using trainmon::guarded;
using trainmon::Handle;

extern "C" {

char *tmn_optimizer_new(std::uint32_t kind, const trainmon::Options *options, Handle **out) {
  return guarded([&] { *out = trainmon::make(kind, *options); });
}

void tmn_optimizer_free(Handle *handle) { delete handle; }

char *tmn_optimizer_add(Handle *handle, const at::Tensor *parameter, std::size_t group) {
  return guarded([&] { handle->add(*parameter, group); });
}

char *tmn_optimizer_step(Handle *handle) {
  return guarded([&] { handle->optimizer().step(); });
}

char *tmn_optimizer_zero_grad(Handle *handle) {
  return guarded([&] { handle->optimizer().zero_grad(); });
}

std::size_t tmn_optimizer_groups(Handle *handle) { return handle->optimizer().param_groups().size(); }

char *tmn_optimizer_read_options(Handle *handle, std::size_t group, trainmon::Options *out) {
  return guarded([&] { handle->read_options(group, *out); });
}

char *tmn_optimizer_write_options(Handle *handle, std::size_t group, const trainmon::Options *options) {
  return guarded([&] { handle->write_options(group, *options); });
}

// Borrows the state's own tensor; null if there is none (yet).
char *tmn_optimizer_moment(Handle *handle, const at::Tensor *parameter, trainmon::Moment moment,
                           const at::Tensor **out) {
  return guarded([&] {
    const at::Tensor *slot = handle->moment(*parameter, moment, false);
    *out = slot != nullptr && slot->defined() ? slot : nullptr;
  });
}

char *tmn_optimizer_set_moment(Handle *handle, const at::Tensor *parameter, trainmon::Moment moment,
                               const at::Tensor *value) {
  return guarded([&] {
    at::Tensor *slot = handle->moment(*parameter, moment, true);
    TORCH_CHECK(slot != nullptr, "this kind of optimizer does not keep this moment");
    *slot = *value;
  });
}

// -1 if the kind does not count steps, or before the parameter's first step.
char *tmn_optimizer_step_count(Handle *handle, const at::Tensor *parameter, std::int64_t *out) {
  return guarded([&] {
    const std::int64_t *count = handle->step_count(*parameter, false);
    *out = count == nullptr ? -1 : *count;
  });
}

char *tmn_optimizer_set_step_count(Handle *handle, const at::Tensor *parameter, std::int64_t count) {
  return guarded([&] {
    std::int64_t *slot = handle->step_count(*parameter, true);
    TORCH_CHECK(slot != nullptr, "this kind of optimizer does not count steps");
    *slot = count;
  });
}

char *tmn_optimizer_clear_state(Handle *handle) {
  return guarded([&] { handle->optimizer().state().clear(); });
}

} // extern "C"
