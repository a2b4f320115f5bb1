// Observes every operator of every thread, and its backward, with torch's own observers (RecordFunction).
#include "guard.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/node.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

namespace {

// The inputs or outputs of an operator, or the gradients of its backward.
struct Values {
  const c10::IValue *items;
  std::size_t count;
  const torch::autograd::variable_list *gradients;
};

// In the order of `take` in src/ffi/record.rs.
enum class Kind : std::uint8_t { BeginList, EndList, Boolean, Integer, Real, Text, Device, Tensor, Null };

// A value for Rust: its kind, and the fields of that kind.
struct Value {
  Kind kind;
  // The value of a boolean or integer; for a tensor, whether it requires a gradient.
  std::int64_t integer = 0;
  double real = 0;
  // The bytes of a text or a device; for a tensor, its dtype.
  const char *text = nullptr;
  std::size_t length = 0;
  const at::Tensor *tensor = nullptr;
};

// Rust's function that receives each value.
struct Sink {
  void (*take)(void *, const Value *);
  void *to;
  void operator()(const Value &value) const { take(to, &value); }
  void operator()(Kind kind, const std::string &text) const { (*this)({kind, 0, 0, text.data(), text.size()}); }
};

// Rust's functions for an operator.
struct Observer {
  // Begins a call. Returns null if the call is not captured.
  void *(*begin)(const char *space, std::size_t space_length, const char *name, std::size_t name_length,
                 const char *overload, std::size_t overload_length, const Values *inputs);
  // Ends a call. Returns the data of its backward, or null if the backward is not captured.
  void *(*end)(void *call, const Values *outputs);
  // Called after a backward, with the gradients of the call's outputs and of its inputs.
  void (*backward)(void *data, const Values *inputs, const Values *outputs);
  void (*drop_backward)(void *data);
};

Observer observer{};
std::atomic<bool> is_on{false};

// The number of nested operators in this thread. Calls within an observed operator are not captured.
thread_local std::uint32_t depth = 0;

struct Context final : at::ObserverContext {
  explicit Context(void *call) : call(call) {}
  void *call;
};

void show(const Sink &sink, const at::Tensor &tensor) {
  if (!tensor.defined()) {
    return sink({Kind::Null});
  }
  const std::string dtype = toString(tensor.scalar_type());
  sink({Kind::Tensor, tensor.requires_grad() ? 1 : 0, 0, dtype.data(), dtype.size(), &tensor});
}

template <typename Items> void show_list(const Sink &sink, const Items &items);

void show(const Sink &sink, const c10::IValue &value) {
  if (value.isTensor()) {
    show(sink, value.toTensor());
  } else if (value.isBool()) {
    sink({Kind::Boolean, value.toBool() ? 1 : 0});
  } else if (value.isInt()) {
    sink({Kind::Integer, value.toInt()});
  } else if (value.isDouble()) {
    sink({Kind::Real, 0, value.toDouble()});
  } else if (value.isString()) {
    sink(Kind::Text, value.toStringRef());
  } else if (value.isDevice()) {
    sink(Kind::Device, value.toDevice().str());
  } else if (value.isList()) {
    show_list(sink, value.toListRef());
  } else if (value.isTuple()) {
    show_list(sink, value.toTupleRef().elements());
  } else {
    sink({Kind::Null});
  }
}

template <typename Items> void show_list(const Sink &sink, const Items &items) {
  sink({Kind::BeginList});
  for (const c10::IValue &item : items) {
    show(sink, item);
  }
  sink({Kind::EndList});
}

// Whether torch decomposes an operator. Its parts are observed instead.
bool is_composite(const c10::OperatorName &name) {
  const auto found = c10::Dispatcher::singleton().findOp(name);
  return found && found->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
}

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction &function) {
  if (!is_on.load(std::memory_order_relaxed)) {
    return nullptr;
  }
  // The operators of a backward are not captured, only its gradients.
  if (function.scope() == at::RecordScope::BACKWARD_FUNCTION) {
    auto context = std::make_unique<Context>(nullptr);
    ++depth;
    return context;
  }
  if (depth > 0) {
    return nullptr;
  }
  const auto name = function.operator_name();
  if (!name || is_composite(*name)) {
    return nullptr;
  }
  auto context = std::make_unique<Context>(nullptr);
  const std::string &full = name->name;
  const std::size_t colons = full.find("::");
  const std::size_t space = colons == std::string::npos ? 0 : colons;
  const std::size_t rest = colons == std::string::npos ? 0 : colons + 2;
  const auto inputs = function.inputs();
  const Values values{inputs.data(), inputs.size(), nullptr};
  context->call = observer.begin(full.data(), space, full.data() + rest, full.size() - rest,
                                 name->overload_name.data(), name->overload_name.size(), &values);
  // Last: torch discards exceptions from above, and then does not call `end`.
  ++depth;
  return context;
}

class Backward final : public torch::autograd::FunctionPostHook {
public:
  explicit Backward(void *data) : data_(data) {}
  Backward(const Backward &) = delete;
  Backward &operator=(const Backward &) = delete;
  ~Backward() override { observer.drop_backward(data_); }

  torch::autograd::variable_list operator()(const torch::autograd::variable_list &outputs,
                                            const torch::autograd::variable_list &inputs) override {
    const Values given{nullptr, 0, &inputs};
    const Values made{nullptr, 0, &outputs};
    observer.backward(data_, &given, &made);
    return outputs;
  }

private:
  void *data_;
};

// Returns the node that this call created. The sequence number, which counts within a thread, identifies it.
torch::autograd::Node *node_of(const at::Tensor &tensor, const at::RecordFunction &function) {
  if (!tensor.defined()) {
    return nullptr;
  }
  torch::autograd::Node *node = torch::autograd::impl::grad_fn_unsafe(tensor);
  const bool is_ours = node != nullptr && function.seqNr() >= 0 &&
                       node->sequence_nr() == static_cast<std::uint64_t>(function.seqNr()) &&
                       node->thread_id() == at::RecordFunction::currentThreadId();
  return is_ours ? node : nullptr;
}

torch::autograd::Node *node_among(const c10::IValue &value, const at::RecordFunction &function) {
  if (value.isTensor()) {
    return node_of(value.toTensor(), function);
  }
  if (value.isTensorList()) {
    for (const at::Tensor &tensor : value.toTensorVector()) {
      if (auto *node = node_of(tensor, function)) {
        return node;
      }
    }
  }
  return nullptr;
}

void end(const at::RecordFunction &function, at::ObserverContext *held) {
  auto *context = static_cast<Context *>(held);
  if (context == nullptr) {
    return;
  }
  --depth;
  if (context->call == nullptr) {
    return;
  }
  const auto &outputs = function.outputs();
  const Values values{outputs.data(), outputs.size(), nullptr};
  void *data = observer.end(context->call, &values);
  if (data == nullptr) {
    return;
  }
  auto hook = std::make_unique<Backward>(data);
  for (const c10::IValue &output : outputs) {
    if (auto *node = node_among(output, function)) {
      node->add_post_hook(std::move(hook));
      return;
    }
  }
}

} // namespace

extern "C" {

// Passes each value to Rust's function.
char *tmn_record_walk(const Values *values, void (*take)(void *, const Value *), void *to) {
  return trainmon::guarded([&] {
    const Sink sink{take, to};
    if (values->gradients != nullptr) {
      for (const at::Tensor &tensor : *values->gradients) {
        show(sink, tensor);
      }
      return;
    }
    for (std::size_t index = 0; index < values->count; ++index) {
      show(sink, values->items[index]);
    }
  });
}

// Starts observing every operator of every thread. There is only one observer at a time.
char *tmn_record_start(const Observer *functions, std::uint64_t *handle) {
  return trainmon::guarded([&] {
    observer = *functions;
    *handle = at::addGlobalCallback(
        at::RecordFunctionCallback(begin, end)
            .needsInputs(true)
            .needsOutputs(true)
            .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
    is_on.store(true);
  });
}

// Pauses the observers in this thread until `tmn_record_go_on`.
void tmn_record_pause() { ++depth; }

void tmn_record_go_on() { --depth; }

char *tmn_record_stop(std::uint64_t handle) {
  return trainmon::guarded([&] {
    is_on.store(false);
    at::removeCallback(handle);
  });
}

} // extern "C"
