// The location and layout of a tensor's memory, without copies and without waiting for a device.
#include "guard.h"

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <cstdint>

namespace {

// Mirrored by ffi::RawDescription; all pointers borrow from the tensor.
struct Description {
  const void *data;
  const std::int64_t *sizes;
  const std::int64_t *strides;
  const void *identity; // the TensorImpl: equal for all handles of one tensor
  std::int64_t dims;
  std::int64_t version; // -1 if the tensor has none (inference mode)
  std::int8_t scalar_type;
  std::int8_t device_type;
  std::uint8_t strided;  // plain dense memory
  std::uint8_t resolved; // the memory holds the values themselves: no pending conjugation or negation
};

} // namespace

extern "C" {

void tmn_error_free(char *message) {
  if (message != trainmon::out_of_memory()) {
    std::free(message);
  }
}

// Leaves `out` untouched and returns 0 for an undefined tensor.
char *tmn_tensor_describe(const at::Tensor *tensor, Description *out, std::uint8_t *defined) {
  return trainmon::guarded([&] {
    *defined = tensor->defined() ? 1 : 0;
    if (!tensor->defined()) {
      return;
    }
    c10::TensorImpl *impl = tensor->unsafeGetTensorImpl();
    const bool strided = tensor->layout() == c10::kStrided && !tensor->is_mkldnn();
    *out = Description{};
    out->identity = impl;
    out->scalar_type = static_cast<std::int8_t>(tensor->scalar_type());
    out->device_type = static_cast<std::int8_t>(tensor->device().type());
    out->strided = strided ? 1 : 0;
    out->resolved = !tensor->is_conj() && !tensor->is_neg() ? 1 : 0;
    out->version = impl->is_inference() ? -1 : impl->version_counter().current_version();
    if (strided) {
      out->data = tensor->numel() == 0 ? nullptr : tensor->const_data_ptr();
      out->sizes = tensor->sizes().data();
      out->strides = tensor->strides().data();
      out->dims = tensor->dim();
    }
  });
}

// The gradient field itself, borrowed from the parameter; null if there is none.
char *tmn_tensor_grad(const at::Tensor *tensor, const at::Tensor **grad) {
  return trainmon::guarded([&] {
    *grad = nullptr;
    if (tensor->defined() && tensor->is_leaf()) {
      const at::Tensor &field = tensor->grad();
      *grad = field.defined() ? &field : nullptr;
    }
  });
}

std::uint8_t tmn_grad_mode_enabled() { return c10::GradMode::is_enabled() ? 1 : 0; }

} // extern "C"
