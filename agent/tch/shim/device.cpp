// Statistics of tensors on a device with libtorch's own operators. Nothing here waits for the device.
#include "guard.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

namespace {

// Columns of the result, in the order of trainmon_agent::front::DeviceColumn, which has the mean instead of the sum and
// the standard deviation instead of the variance.
enum Column : std::uint32_t { min, max, sum, norm, variance, nans, infs, zeros, columns };

bool asked(std::uint32_t wanted, Column column) { return (wanted & (1U << column)) != 0; }

// Converts a tensor for the reductions: float8 has no arithmetic, and complex values count by magnitude.
at::Tensor computable(const at::Tensor &tensor) {
  const at::Tensor detached = tensor.detach();
  if (detached.is_complex()) {
    return detached.abs();
  }
  switch (detached.scalar_type()) {
  case at::kFloat8_e4m3fn:
  case at::kFloat8_e4m3fnuz:
  case at::kFloat8_e5m2:
  case at::kFloat8_e5m2fnuz:
    return detached.to(at::kFloat);
  default:
    return detached;
  }
}

// Stacks one 0-d result per tensor to a float64 column.
template <class Reduce> at::Tensor column(const std::vector<at::Tensor> &tensors, Reduce &&reduce) {
  std::vector<at::Tensor> results;
  results.reserve(tensors.size());
  for (const at::Tensor &tensor : tensors) {
    results.push_back(reduce(tensor));
  }
  return at::stack(results).to(at::kDouble);
}

at::Tensor norms(const std::vector<at::Tensor> &tensors) {
  std::vector<at::Tensor> floating;
  floating.reserve(tensors.size());
  for (const at::Tensor &tensor : tensors) {
    floating.push_back(tensor.is_floating_point() ? tensor : tensor.to(at::kDouble));
  }
  return at::stack(at::_foreach_norm(floating, 2, at::kDouble));
}

at::Tensor extremes(const std::vector<at::Tensor> &tensors, std::vector<at::Tensor> &filled) {
  std::vector<at::Tensor> largest;
  for (const at::Tensor &tensor : tensors) {
    auto [low, high] = at::aminmax(tensor);
    filled.push_back(low);
    largest.push_back(high);
  }
  return at::stack(largest).to(at::kDouble);
}

at::Tensor constant(const std::vector<at::Tensor> &tensors, double value) {
  return at::full({static_cast<std::int64_t>(tensors.size())}, value, tensors[0].options().dtype(at::kDouble));
}

at::Tensor measure(const std::vector<at::Tensor> &tensors, std::uint32_t wanted, double eps) {
  std::vector<at::Tensor> all(columns);
  const auto fill = [&](Column which, auto &&make) {
    all[which] = asked(wanted, which) ? make() : constant(tensors, 0.0);
  };
  fill(sum, [&] { return column(tensors, [](const at::Tensor &t) { return t.sum(at::kDouble); }); });
  fill(norm, [&] { return norms(tensors); });
  fill(variance, [&] { return column(tensors, [](const at::Tensor &t) {
    // A single element has no variance, and torch would print a warning.
    return t.numel() < 2 ? at::full({}, NAN, t.options().dtype(at::kDouble)) : t.to(at::kDouble).var();
  }); });
  fill(nans, [&] { return column(tensors, [](const at::Tensor &t) { return t.isnan().sum(); }); });
  fill(infs, [&] { return column(tensors, [](const at::Tensor &t) { return t.isinf().sum(); }); });
  fill(zeros, [&] {
    return column(tensors, [&](const at::Tensor &t) {
      return t.scalar_type() == at::kBool ? t.logical_not().sum() : t.abs().lt(eps).sum();
    });
  });
  if (asked(wanted, min) || asked(wanted, max)) {
    std::vector<at::Tensor> lowest;
    all[max] = extremes(tensors, lowest);
    all[min] = at::stack(lowest).to(at::kDouble);
  } else {
    all[min] = all[max] = constant(tensors, 0.0);
  }
  return at::stack(all, 1);
}

// A small result that is being copied to the host.
struct Pending {
  at::Tensor on_device; // kept until the copy is done
  at::Tensor on_host;
  std::optional<c10::Event> copied; // none if the result was computed on the host
};

// Device memory from libtorch's allocator, used in the order of the current stream.
struct Buffer {
  at::Tensor memory;
};

std::unique_ptr<Pending> deliver(at::Tensor on_device) {
  auto pending = std::make_unique<Pending>();
  pending->on_device = std::move(on_device);
  const c10::Device device = pending->on_device.device();
  if (device.is_cpu()) {
    pending->on_host = pending->on_device;
  } else {
    pending->on_host =
        at::empty(pending->on_device.sizes(), at::TensorOptions().dtype(at::kDouble).pinned_memory(true));
    pending->on_host.copy_(pending->on_device, /*non_blocking=*/true);
    const c10::impl::VirtualGuardImpl guard(device.type());
    pending->copied.emplace(device.type());
    pending->copied->record(guard.getStream(device));
  }
  return pending;
}

c10::Device device_of(std::int32_t index) {
  return index < 0 ? c10::Device(c10::kCPU) : c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
}

} // namespace

extern "C" {

// Launches the statistics of `count` tensors of one device and the copy of the [count, columns] result to the host.
char *tmn_device_launch(const at::Tensor *const *tensors, std::size_t count, std::uint32_t wanted, double eps,
                        Pending **out) {
  return trainmon::guarded([&] {
    const c10::AutoGradMode no_grad(false);
    TORCH_CHECK(count > 0, "nothing to measure");
    std::vector<at::Tensor> readable;
    readable.reserve(count);
    for (std::size_t index = 0; index < count; ++index) {
      readable.push_back(computable(*tensors[index]));
    }
    *out = deliver(measure(readable, wanted, eps).contiguous()).release();
  });
}

// Allocates `count` float64 elements on the CUDA device with this index, or on the host for -1.
char *tmn_buffer_make(std::int32_t device, std::size_t count, Buffer **out) {
  return trainmon::guarded([&] {
    const auto options = at::TensorOptions().dtype(at::kDouble).device(device_of(device));
    *out = new Buffer{at::empty({static_cast<std::int64_t>(count)}, options)};
  });
}

// Allocates a buffer and copies `words` to it. The host does not wait for the copy.
char *tmn_buffer_fill(std::int32_t device, const std::int64_t *words, std::size_t count, Buffer **out) {
  return trainmon::guarded([&] {
    const c10::Device where = device_of(device);
    const auto options = at::TensorOptions().dtype(at::kLong).pinned_memory(!where.is_cpu());
    const at::Tensor host = at::empty({static_cast<std::int64_t>(count)}, options);
    std::memcpy(host.mutable_data_ptr<std::int64_t>(), words, count * sizeof(std::int64_t));
    *out = new Buffer{where.is_cpu() ? host : host.to(where, /*non_blocking=*/true)};
  });
}

std::uint64_t tmn_buffer_address(const Buffer *buffer) {
  return reinterpret_cast<std::uintptr_t>(buffer->memory.const_data_ptr());
}

void tmn_buffer_free(Buffer *buffer) { delete buffer; }

// The driver's handle of a CUDA device's current stream.
char *tmn_stream(std::int32_t device, std::uint64_t *out) {
  return trainmon::guarded([&] {
    *out = 0;
    if (device >= 0) {
      const c10::impl::VirtualGuardImpl guard(c10::kCUDA);
      *out = reinterpret_cast<std::uintptr_t>(guard.getStream(device_of(device)).native_handle());
    }
  });
}

// Starts copying a buffer with a [rows, columns] result to the host. Consumes the buffer.
char *tmn_buffer_deliver(Buffer *buffer, Pending **out) {
  const std::unique_ptr<Buffer> owned(buffer);
  return trainmon::guarded([&] { *out = deliver(owned->memory).release(); });
}

// Whether the copy has arrived. Never waits.
char *tmn_pending_ready(const Pending *pending, std::uint8_t *ready) {
  return trainmon::guarded([&] { *ready = !pending->copied || pending->copied->query() ? 1 : 0; });
}

// The result, row by row; valid from when it is ready until it is freed.
const double *tmn_pending_values(const Pending *pending) { return pending->on_host.const_data_ptr<double>(); }

void tmn_pending_free(Pending *pending) { delete pending; }

} // extern "C"
