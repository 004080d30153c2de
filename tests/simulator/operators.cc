// Operators on the simulated devices: a boxed fallback that queues any operator of LibTorch onto the
// current stream, where the CPU's kernel runs it over the second mapping of the memory.
//
// The shapes of its results have to be known when it is queued, before it runs: the host runs the
// operator on zeros of the same shapes first. Views come from the same on meta tensors, and queue
// nothing. Operators whose results depend on values (nonzero, equal, item) wait, as on a GPU.
#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/stack.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulator/accelerator.h"
#include "tests/simulator/memory.h"

namespace tandem::testing {
namespace {

using c10::IValue;
using torch::jit::Stack;
using Span = SimulatedAccelerator::Span;

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

bool OnDevice(const at::Tensor& tensor) { return tensor.defined() && tensor.is_privateuseone(); }

// The first byte of the tensor's first element; of no use to the host.
const void* AddressOf(const at::Tensor& tensor) {
  const auto* const begin = static_cast<const std::byte*>(tensor.storage().data());
  return begin == nullptr ? nullptr : begin + tensor.storage_offset() * tensor.element_size();
}

// Bytes from the first element to the last, gaps included.
size_t ExtentOf(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return 0;
  int64_t last = 0;
  for (int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
  return static_cast<size_t>(last + 1) * tensor.element_size();
}

Span SpanOf(const at::Tensor& tensor) { return {AddressOf(tensor), ExtentOf(tensor)}; }

// The tensor as a stream sees it: a CPU tensor over the second mapping.
at::Tensor OnStream(const at::Tensor& tensor) {
  const at::TensorOptions options = at::TensorOptions(tensor.scalar_type());
  if (tensor.numel() == 0) return at::empty_strided(tensor.sizes(), tensor.strides(), options);
  TORCH_CHECK(AddressOf(tensor) != nullptr, "a tensor ", tensor.sizes(),
              " of a simulated device has no memory now: is its unit gathered?");
  return at::from_blob(SimulatedMemory::Get().OnStream(AddressOf(tensor)), tensor.sizes(),
                       tensor.strides(), options);
}

// Zeros in its shape, to find out what an operator makes of such tensors.
at::Tensor ZerosLike(const at::Tensor& tensor) {
  const auto elements = static_cast<int64_t>(ExtentOf(tensor) / tensor.element_size());
  return at::zeros({elements}, at::TensorOptions(tensor.scalar_type()))
      .as_strided(tensor.sizes(), tensor.strides());
}

at::Tensor NewTensor(c10::IntArrayRef size, c10::IntArrayRef stride, at::ScalarType type,
                     c10::Device device) {
  const c10::DeviceGuard guard(device);
  return at::detail::empty_strided_generic(size, stride, c10::GetAllocator(c10::kPrivateUse1),
                                           kKeys, type);
}

// Replaces every tensor of an argument, alone or in a list.
IValue MapTensors(const IValue& value, const std::function<at::Tensor(const at::Tensor&)>& map) {
  if (value.isTensor()) return map(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(map(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor.has_value() ? std::optional<at::Tensor>(map(*tensor)) : std::nullopt);
    }
    return list;
  }
  if (value.isDevice()) return c10::Device(c10::kCPU);
  return value;
}

void ForTensors(const IValue& value, const std::function<void(const at::Tensor&)>& visit) {
  MapTensors(value, [&](const at::Tensor& tensor) {
    visit(tensor);
    return tensor;
  });
}

// A call of one operator, on tensors of one device.
class Call {
 public:
  Call(const c10::OperatorHandle& op, Stack* stack)
      : op_(op), schema_(op.schema()), stack_(*stack) {
    const size_t count = schema_.arguments().size();
    args_.assign(stack_.end() - static_cast<ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    for (const IValue& arg : args_) {
      ForTensors(arg, [&](const at::Tensor& tensor) {
        if (OnDevice(tensor)) device_ = tensor.device();
      });
      if (arg.isDevice() && arg.toDevice().is_privateuseone()) device_ = arg.toDevice();
    }
    if (!device_.has_index()) {
      device_.set_index(static_cast<c10::DeviceIndex>(SimulatedAccelerator::current_device()));
    }
  }

  void Run() {
    if (IsView()) {
      MakeViews();
    } else if (DependsOnValues()) {
      RunNow();
    } else {
      Queue();
    }
  }

 private:
  std::string Name() const { return schema_.name(); }
  bool Writes(size_t arg) const {
    const c10::AliasInfo* const alias = schema_.arguments()[arg].alias_info();
    return alias != nullptr && alias->isWrite();
  }

  // Its results are views of an argument.
  bool IsView() const {
    for (const c10::Argument& result : schema_.returns()) {
      if (result.alias_info() != nullptr && !result.alias_info()->isWrite()) return true;
    }
    return false;
  }

  bool DependsOnValues() const {
    static const std::set<std::string>& names =
        *new std::set<std::string>{"aten::nonzero",
                                   "aten::masked_select",
                                   "aten::bincount",
                                   "aten::_unique",
                                   "aten::_unique2",
                                   "aten::unique_dim",
                                   "aten::unique_consecutive",
                                   "aten::repeat_interleave"};
    if (names.contains(Name())) return true;
    for (const c10::Argument& result : schema_.returns()) {
      if (*result.type() != *c10::TensorType::get() &&
          *result.type() != *c10::ListType::ofTensors()) {
        return true;
      }
    }
    bool by_mask = false;
    if (Name() == "aten::index" || Name() == "aten::index_put_" ||
        Name() == "aten::_index_put_impl_") {
      ForTensors(args_[1], [&](const at::Tensor& index) {
        if (index.defined() && index.scalar_type() == at::kBool) by_mask = true;
      });
    }
    return by_mask;
  }

  // A host tensor may only be a number, which a kernel takes by value.
  at::Tensor Number(const at::Tensor& tensor) const {
    if (!tensor.defined()) return tensor;
    TORCH_CHECK(tensor.numel() == 1 && tensor.dim() == 0, Name(), ": expected tensors on ",
                device_.str(), ", found one on ", tensor.device().str(), " of shape ",
                tensor.sizes());
    at::Tensor copy = tensor.clone();
    copy.unsafeGetTensorImpl()->set_wrapped_number(
        tensor.unsafeGetTensorImpl()->is_wrapped_number());
    return copy;
  }

  Stack Map(const std::function<at::Tensor(const at::Tensor&)>& map) const {
    Stack mapped;
    for (const IValue& arg : args_) {
      mapped.push_back(MapTensors(arg, [&](const at::Tensor& tensor) {
        return OnDevice(tensor) ? map(tensor) : Number(tensor);
      }));
    }
    return mapped;
  }

  // Calls the operator on tensors that are no longer on the device; leaves its results.
  static void CallOn(const c10::OperatorHandle& op, Stack& stack) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    op.callBoxed(&stack);
  }

  void MakeViews() {
    at::Tensor base;
    Stack meta = Map([&](const at::Tensor& tensor) {
      if (!base.defined()) base = tensor;
      at::Tensor shape = at::detail::make_tensor<c10::TensorImpl>(
          c10::Storage(c10::Storage::use_byte_size_t(), tensor.storage().nbytes(),
                       at::DataPtr(nullptr, c10::Device(c10::kMeta)), c10::GetAllocator(c10::kMeta),
                       /*resizable=*/true),
          c10::DispatchKeySet(c10::DispatchKey::Meta), tensor.dtype());
      shape.unsafeGetTensorImpl()->set_storage_offset(tensor.storage_offset());
      shape.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides());
      return shape;
    });
    for (IValue& value : meta) {
      if (value.isDevice()) value = c10::Device(c10::kMeta);
    }
    CallOn(op_, meta);
    for (const IValue& result : meta) {
      stack_.push_back(MapTensors(result, [&](const at::Tensor& shape) {
        at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(
            c10::TensorImpl::VIEW, c10::Storage(base.storage()), base.key_set(), shape.dtype());
        view.unsafeGetTensorImpl()->set_storage_offset(shape.storage_offset());
        view.unsafeGetTensorImpl()->set_sizes_and_strides(shape.sizes(), shape.strides());
        return view;
      }));
    }
  }

  // What the stream reads and writes, besides new results.
  void AddSpans(SimulatedAccelerator::Operation& operation) const {
    for (size_t i = 0; i < args_.size(); ++i) {
      ForTensors(args_[i], [&](const at::Tensor& tensor) {
        if (OnDevice(tensor))
          (Writes(i) ? operation.writes : operation.reads).push_back(SpanOf(tensor));
      });
    }
  }

  void CheckDevices() const {
    for (const IValue& arg : args_) {
      ForTensors(arg, [&](const at::Tensor& tensor) {
        TORCH_CHECK(!OnDevice(tensor) || tensor.device() == device_, Name(), ": tensors of ",
                    device_.str(), " and ", tensor.device().str());
      });
    }
  }

  c10::Stream Current() const { return SimulatedAccelerator::CurrentStream(device_.index()); }

  void Queue() {
    CheckDevices();
    Stack shapes = Map(&ZerosLike);
    const Stack before = shapes;
    CallOn(op_, shapes);
    ResizeWritten(before);

    SimulatedAccelerator::Operation operation;
    operation.what = Name();
    AddSpans(operation);
    // New results, in order, as the stream sees them.
    std::vector<at::Tensor> targets;
    for (size_t i = 0; i < shapes.size(); ++i) {
      const c10::AliasInfo* const alias = schema_.returns()[i].alias_info();
      if (alias != nullptr) {
        stack_.push_back(ArgumentOf(*alias));
        continue;
      }
      stack_.push_back(MapTensors(shapes[i], [&](const at::Tensor& shape) {
        if (!shape.defined()) {
          targets.emplace_back();
          return at::Tensor();
        }
        at::Tensor result = NewTensor(shape.sizes(), shape.strides(), shape.scalar_type(), device_);
        operation.writes.push_back(SpanOf(result));
        targets.push_back(OnStream(result));
        return result;
      }));
    }
    auto inputs = std::make_shared<Stack>(Map(&OnStream));
    std::vector<bool> is_new;
    for (const c10::Argument& result : schema_.returns()) {
      is_new.push_back(result.alias_info() == nullptr);
    }
    operation.run = [op = op_, inputs, targets, is_new] {
      const at::NoGradGuard no_grad;
      CallOn(op, *inputs);
      size_t next = 0;
      for (size_t i = 0; i < inputs->size(); ++i) {
        if (!is_new[i]) continue;
        ForTensors((*inputs)[i], [&](const at::Tensor& result) {
          if (targets[next].defined()) targets[next].copy_(result);
          ++next;
        });
      }
    };
    SimulatedAccelerator::Get().Enqueue(Current(), std::move(operation));
  }

  // Results of out= arguments that the operator gives another size.
  void ResizeWritten(const Stack& shapes) {
    for (size_t i = 0; i < args_.size(); ++i) {
      if (!Writes(i) || !args_[i].isTensor() || !shapes[i].isTensor()) continue;
      at::Tensor out = args_[i].toTensor();
      const at::Tensor& shape = shapes[i].toTensor();
      if (!OnDevice(out) || out.sizes() == shape.sizes()) continue;
      const at::Tensor larger =
          NewTensor(shape.sizes(), shape.strides(), shape.scalar_type(), device_);
      out.unsafeGetTensorImpl()->set_storage_keep_dtype(larger.storage());
      out.unsafeGetTensorImpl()->set_storage_offset(0);
      out.unsafeGetTensorImpl()->set_sizes_and_strides(larger.sizes(), larger.strides());
    }
  }

  IValue ArgumentOf(const c10::AliasInfo& alias) const {
    for (size_t i = 0; i < args_.size(); ++i) {
      const c10::AliasInfo* const other = schema_.arguments()[i].alias_info();
      if (other != nullptr && other->beforeSets() == alias.beforeSets()) return args_[i];
    }
    TORCH_INTERNAL_ASSERT(false, Name(), ": a result of no argument");
  }

  // Waits for the operator's results.
  void RunNow() {
    CheckDevices();
    SimulatedAccelerator& accelerator = SimulatedAccelerator::Get();
    SimulatedAccelerator::Operation operation;
    operation.what = Name();
    AddSpans(operation);
    auto inputs = std::make_shared<Stack>(Map(&OnStream));
    operation.run = [op = op_, inputs] {
      const at::NoGradGuard no_grad;
      CallOn(op, *inputs);
    };
    accelerator.Enqueue(Current(), std::move(operation));
    accelerator.Synchronize(Current());
    for (size_t i = 0; i < schema_.returns().size(); ++i) {
      const c10::AliasInfo* const alias = schema_.returns()[i].alias_info();
      stack_.push_back(alias != nullptr ? ArgumentOf(*alias)
                                        : MapTensors((*inputs)[i], [&](const at::Tensor& result) {
                                            return result.to(device_);
                                          }));
    }
  }

  const c10::OperatorHandle op_;
  const c10::FunctionSchema& schema_;
  Stack& stack_;
  std::vector<IValue> args_;
  c10::Device device_{c10::kPrivateUse1};
};

void Fallback(const c10::OperatorHandle& op, Stack* stack) { Call(op, stack).Run(); }

c10::Device DeviceFor(std::optional<c10::Device> device) {
  c10::Device found = device.value_or(c10::Device(c10::kPrivateUse1));
  if (!found.has_index()) {
    found.set_index(static_cast<c10::DeviceIndex>(SimulatedAccelerator::current_device()));
  }
  return found;
}

at::Tensor Empty(c10::IntArrayRef size, std::optional<at::ScalarType> type,
                 std::optional<c10::Layout>, std::optional<c10::Device> device, std::optional<bool>,
                 std::optional<c10::MemoryFormat> format) {
  const c10::DeviceGuard guard(DeviceFor(device));
  return at::detail::empty_generic(size, c10::GetAllocator(c10::kPrivateUse1), kKeys,
                                   type.value_or(at::kFloat), format);
}

at::Tensor EmptyStrided(c10::IntArrayRef size, c10::IntArrayRef stride,
                        std::optional<at::ScalarType> type, std::optional<c10::Layout>,
                        std::optional<c10::Device> device, std::optional<bool>) {
  return NewTensor(size, stride, type.value_or(at::kFloat), DeviceFor(device));
}

bool IsPinned(const at::Tensor& tensor) {
  return tensor.numel() > 0 && SimulatedMemory::Get().IsPinned(tensor.const_data_ptr());
}

// As on CUDA: between the device and pinned memory a copy is queued; with other host memory the
// device reads a copy made now, and the host waits for what it is to receive. `non_blocking` false
// waits in any case.
at::Tensor CopyFrom(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  TORCH_CHECK(!OnDevice(from) || !OnDevice(to) || from.device() == to.device(),
              "copies between simulated devices are not simulated");
  SimulatedAccelerator& accelerator = SimulatedAccelerator::Get();
  const c10::Device device = OnDevice(from) ? from.device() : to.device();
  const c10::Stream stream = SimulatedAccelerator::CurrentStream(device.index());
  SimulatedAccelerator::Operation operation;
  at::Tensor source, target;
  bool waits = false;
  if (OnDevice(from) || (non_blocking && IsPinned(from))) {
    operation.reads.push_back(SpanOf(from));
    source = OnStream(from);
  } else {
    source = from.clone();
  }
  if (OnDevice(to) || (non_blocking && IsPinned(to))) {
    operation.writes.push_back(SpanOf(to));
    target = OnStream(to);
  } else {
    target = to;
    waits = true;
  }
  if (OnDevice(from) != OnDevice(to) && !non_blocking) waits = true;
  if (OnDevice(from) != OnDevice(to)) operation.host_bytes = static_cast<int64_t>(to.nbytes());
  operation.what =
      OnDevice(from) ? OnDevice(to) ? "copy" : "copy to the host" : "copy from the host";
  operation.run = [source, target] {
    const at::NoGradGuard no_grad;
    target.copy_(source);
  };
  accelerator.Enqueue(stream, std::move(operation));
  if (waits) accelerator.Synchronize(stream);
  return to;
}

at::Tensor CopyFromAndResize(const at::Tensor& from, const at::Tensor& to) {
  at::Tensor resized = to;
  if (resized.sizes() != from.sizes()) resized.resize_(from.sizes());
  return CopyFrom(from, resized, /*non_blocking=*/false);
}

at::Scalar LocalScalar(const at::Tensor& tensor) {
  const at::Tensor host = at::empty({}, at::TensorOptions(tensor.scalar_type()));
  CopyFrom(tensor.reshape({}), host, /*non_blocking=*/false);
  return host.item();
}

const at::Tensor& Resize(const at::Tensor& tensor, c10::IntArrayRef size,
                         std::optional<c10::MemoryFormat> format) {
  if (tensor.sizes() == size) return tensor;
  const at::Tensor larger =
      Empty(size, tensor.scalar_type(), std::nullopt, tensor.device(), std::nullopt, format);
  TORCH_CHECK(tensor.numel() == 0, "resizing a tensor with elements is not simulated");
  c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  impl.set_storage_keep_dtype(larger.storage());
  impl.set_storage_offset(0);
  impl.set_sizes_and_strides(larger.sizes(), larger.strides());
  return tensor;
}

at::Tensor& SetStorage(at::Tensor& tensor, c10::Storage storage, int64_t offset,
                       c10::IntArrayRef size, c10::IntArrayRef stride) {
  c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  impl.set_storage_keep_dtype(std::move(storage));
  impl.set_storage_offset(offset);
  impl.set_sizes_and_strides(size, stride);
  return tensor;
}

}  // namespace

void RegisterOperators() {
  static torch::Library& fallback = *new torch::Library(
      torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  fallback.fallback(torch::CppFunction::makeFromBoxedFunction<&Fallback>());
  static torch::Library& aten = *new torch::Library(
      torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  aten.impl("empty.memory_format", TORCH_FN(Empty));
  aten.impl("empty_strided", TORCH_FN(EmptyStrided));
  aten.impl("_copy_from", TORCH_FN(CopyFrom));
  aten.impl("_copy_from_and_resize", TORCH_FN(CopyFromAndResize));
  aten.impl("_local_scalar_dense", TORCH_FN(LocalScalar));
  aten.impl("resize_", TORCH_FN(Resize));
  aten.impl("set_.source_Storage_storage_offset", TORCH_FN(SetStorage));
}

}  // namespace tandem::testing
