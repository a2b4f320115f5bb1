// A common handle for torch::optim's optimizers, and the differences between them.
#pragma once

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <tuple>

namespace trainmon {

// All options of all kinds; each kind reads its own. Mirrored by ffi::GroupOptions.
struct Options {
  double lr, beta1, beta2, eps, weight_decay, momentum, dampening, alpha, lr_decay, initial_accumulator;
  std::uint8_t amsgrad, nesterov, centered;
};

// Mirrored by ffi::Moment.
enum class Moment : std::uint32_t {
  exp_avg,
  exp_avg_sq,
  max_exp_avg_sq,
  momentum_buffer,
  square_avg,
  grad_avg,
  sum,
};

template <class OptimizerType, class OptionsType, class StateType> struct AdamKind {
  using Optimizer = OptimizerType;
  using TorchOptions = OptionsType;
  using State = StateType;
  static OptionsType to_torch(const Options &options) {
    return OptionsType(options.lr)
        .betas(std::make_tuple(options.beta1, options.beta2))
        .weight_decay(options.weight_decay)
        .eps(options.eps)
        .amsgrad(options.amsgrad != 0);
  }
  static void from_torch(const OptionsType &torch, Options &options) {
    std::tie(options.beta1, options.beta2) = torch.betas();
    options.eps = torch.eps();
    options.amsgrad = torch.amsgrad();
  }
  static at::Tensor *slot(StateType &state, Moment moment) {
    switch (moment) {
    case Moment::exp_avg:
      return &state.exp_avg();
    case Moment::exp_avg_sq:
      return &state.exp_avg_sq();
    case Moment::max_exp_avg_sq:
      return &state.max_exp_avg_sq();
    default:
      return nullptr;
    }
  }
  static std::int64_t *step(StateType &state) { return &state.step(); }
  static void begin(StateType &, const at::Tensor &, const OptionsType &) {}
};

using Adam = AdamKind<torch::optim::Adam, torch::optim::AdamOptions, torch::optim::AdamParamState>;
using AdamW = AdamKind<torch::optim::AdamW, torch::optim::AdamWOptions, torch::optim::AdamWParamState>;

struct Sgd {
  using Optimizer = torch::optim::SGD;
  using TorchOptions = torch::optim::SGDOptions;
  using State = torch::optim::SGDParamState;
  static TorchOptions to_torch(const Options &options) {
    return TorchOptions(options.lr)
        .momentum(options.momentum)
        .dampening(options.dampening)
        .weight_decay(options.weight_decay)
        .nesterov(options.nesterov != 0);
  }
  static void from_torch(const TorchOptions &torch, Options &options) {
    options.momentum = torch.momentum();
    options.dampening = torch.dampening();
    options.nesterov = torch.nesterov();
  }
  static at::Tensor *slot(State &state, Moment moment) {
    return moment == Moment::momentum_buffer ? &state.momentum_buffer() : nullptr;
  }
  static std::int64_t *step(State &) { return nullptr; }
  static void begin(State &, const at::Tensor &, const TorchOptions &) {}
};

struct RmsProp {
  using Optimizer = torch::optim::RMSprop;
  using TorchOptions = torch::optim::RMSpropOptions;
  using State = torch::optim::RMSpropParamState;
  static TorchOptions to_torch(const Options &options) {
    return TorchOptions(options.lr)
        .alpha(options.alpha)
        .eps(options.eps)
        .weight_decay(options.weight_decay)
        .momentum(options.momentum)
        .centered(options.centered != 0);
  }
  static void from_torch(const TorchOptions &torch, Options &options) {
    options.alpha = torch.alpha();
    options.eps = torch.eps();
    options.momentum = torch.momentum();
    options.centered = torch.centered();
  }
  static at::Tensor *slot(State &state, Moment moment) {
    switch (moment) {
    case Moment::square_avg:
      return &state.square_avg();
    case Moment::momentum_buffer:
      return &state.momentum_buffer();
    case Moment::grad_avg:
      return &state.grad_avg();
    default:
      return nullptr;
    }
  }
  static std::int64_t *step(State &state) { return &state.step(); }
  static void begin(State &, const at::Tensor &, const TorchOptions &) {}
};

struct Adagrad {
  using Optimizer = torch::optim::Adagrad;
  using TorchOptions = torch::optim::AdagradOptions;
  using State = torch::optim::AdagradParamState;
  static TorchOptions to_torch(const Options &options) {
    return TorchOptions(options.lr)
        .lr_decay(options.lr_decay)
        .weight_decay(options.weight_decay)
        .initial_accumulator_value(options.initial_accumulator)
        .eps(options.eps);
  }
  static void from_torch(const TorchOptions &torch, Options &options) {
    options.lr_decay = torch.lr_decay();
    options.initial_accumulator = torch.initial_accumulator_value();
    options.eps = torch.eps();
  }
  static at::Tensor *slot(State &state, Moment moment) {
    return moment == Moment::sum ? &state.sum() : nullptr;
  }
  static std::int64_t *step(State &state) { return &state.step(); }
  // torch's Adagrad creates its state in the constructor, before it has any parameters here.
  static void begin(State &state, const at::Tensor &parameter, const TorchOptions &options) {
    state.step(0);
    state.sum(at::full_like(parameter.detach(), options.initial_accumulator_value(), at::MemoryFormat::Preserve));
  }
};

// The caller's handle to an optimizer.
class Handle {
public:
  virtual ~Handle() = default;
  virtual torch::optim::Optimizer &optimizer() = 0;
  virtual void add(const at::Tensor &parameter, std::size_t group) = 0;
  // A `group` out of range means the default options, which apply to groups added later.
  virtual void read_options(std::size_t group, Options &options) = 0;
  virtual void write_options(std::size_t group, const Options &options) = 0;
  // Null if this kind keeps no such value, or if the parameter has no state yet and `create` is false.
  virtual at::Tensor *moment(const at::Tensor &parameter, Moment moment, bool create) = 0;
  virtual std::int64_t *step_count(const at::Tensor &parameter, bool create) = 0;
};

} // namespace trainmon
