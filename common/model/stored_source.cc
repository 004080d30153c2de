#include "common/model/stored_source.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/io/release_pages.h"
#include "common/model/torch_dtype.h"
#include "common/status/status_macros.h"

namespace tandem::model {
namespace {

constexpr int64_t kElementsAtOnce = 1 << 16;

absl::StatusOr<at::ScalarType> TypeOf(const io::TensorView& tensor) {
  const std::optional<at::ScalarType> type = TorchDType(tensor.dtype);
  if (type.has_value()) return *type;
  return absl::UnimplementedError(
      absl::StrCat("tensor ", tensor.name, " has element type ", io::Name(tensor.dtype),
                   "; expected F32, BF16 or F16: export the model in one of these"));
}

// Copies elements [first, first + count), which `read(first, count, to)` gives in the type of the
// source, converted to `dtype`. Goes through an aligned buffer, because a file's bytes may start at
// any address.
template <typename Read>
void Convert(int64_t first, int64_t count, at::ScalarType from, at::ScalarType dtype, void* out,
             Read read) {
  const at::Tensor aligned = at::empty({std::min(count, kElementsAtOnce)}, from);
  at::Tensor destination = at::from_blob(out, {count}, at::TensorOptions(dtype));
  for (int64_t done = 0; done < count; done += kElementsAtOnce) {
    const int64_t n = std::min(count - done, kElementsAtOnce);
    read(first + done, n, static_cast<std::byte*>(aligned.mutable_data_ptr()));
    destination.narrow(0, done, n).copy_(aligned.narrow(0, 0, n));
  }
}

// Writes elements [first, first + count) of the parameter as float32.
absl::Status Dequantize(const QuantizedTensor& tensor, const StoredView& view, int64_t first,
                        int64_t count, float* out) {
  absl::Status status;
  ForStoredRuns(view, first, count, [&](const StoredRun& run) {
    if (!status.ok()) return;
    status = tensor.Read(run.stored, run.count, run.stride, out + (run.first - first));
  });
  return status;
}

// The same, converted to `dtype`.
absl::Status Dequantize(const QuantizedTensor& tensor, const StoredView& view, int64_t first,
                        int64_t count, at::ScalarType dtype, void* out) {
  if (dtype == at::kFloat) {
    return Dequantize(tensor, view, first, count, static_cast<float*>(out));
  }
  const at::Tensor piece = at::empty({std::min(count, kElementsAtOnce)}, at::kFloat);
  at::Tensor destination = at::from_blob(out, {count}, at::TensorOptions(dtype));
  for (int64_t done = 0; done < count; done += kElementsAtOnce) {
    const int64_t n = std::min(count - done, kElementsAtOnce);
    RETURN_IF_ERROR(Dequantize(tensor, view, first + done, n, piece.mutable_data_ptr<float>()));
    destination.narrow(0, done, n).copy_(piece.narrow(0, 0, n));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StoredSource::Part> StoredSource::FindPart(const io::ModelFolder& folder,
                                                          const StoredView& view,
                                                          const Quantization* quantization) {
  if (quantization != nullptr &&
      !quantization->PartsOf(folder, view.tensor, view.tensor_shape).empty()) {
    ASSIGN_OR_RETURN(auto quantized, quantization->Open(folder, view.tensor, view.tensor_shape));
    return Part{view, {view.tensor, io::DType::kF32, view.tensor_shape, {}}, std::move(quantized)};
  }
  ASSIGN_OR_RETURN(io::TensorView tensor, folder.Find(view.tensor));
  RETURN_IF_ERROR(TypeOf(tensor).status()) << folder.path();
  if (tensor.shape != view.tensor_shape) {
    return absl::FailedPreconditionError(absl::StrCat(
        folder.path(), ": tensor ", view.tensor, ": shape [", absl::StrJoin(tensor.shape, ", "),
        "] where [", absl::StrJoin(view.tensor_shape, ", "), "] was expected"));
  }
  return Part{view, std::move(tensor), nullptr};
}

absl::StatusOr<StoredSource> StoredSource::Find(const io::ModelFolder& folder,
                                                absl::Span<const StoredView> views,
                                                const Quantization* quantization) {
  std::vector<Part> parts;
  for (const StoredView& view : views) {
    ASSIGN_OR_RETURN(Part part, FindPart(folder, view, quantization));
    const io::TensorView& tensor = part.tensor;
    if (!parts.empty() && tensor.dtype != parts[0].tensor.dtype) {
      return absl::FailedPreconditionError(absl::StrCat(
          folder.path(), ": tensor ", view.tensor, ": element type ", io::Name(tensor.dtype),
          " where ", io::Name(parts[0].tensor.dtype), " was expected, that of ",
          parts[0].tensor.name, "; both hold rows of one parameter"));
    }
    parts.push_back(std::move(part));
  }
  return StoredSource(std::move(parts));
}

int64_t StoredSource::num_elements() const {
  return parts_.back().view.first + parts_.back().view.numel();
}

absl::Status StoredSource::Copy(int64_t first, int64_t count, at::ScalarType dtype,
                                void* out) const {
  if (first < 0 || count < 0 || first + count > num_elements()) {
    return absl::OutOfRangeError(absl::StrCat("elements [", first, ", ", first + count,
                                              ") of a parameter in tensor ", parts_[0].tensor.name,
                                              ", which has ", num_elements()));
  }
  const auto out_size = static_cast<int64_t>(c10::elementSize(dtype));
  for (const Part& part : parts_) {
    const int64_t begin = std::max(first, part.view.first);
    const int64_t end = std::min(first + count, part.view.first + part.view.numel());
    if (begin >= end) continue;
    auto* const to = static_cast<std::byte*>(out) + (begin - first) * out_size;
    if (part.quantized != nullptr) {
      RETURN_IF_ERROR(Dequantize(*part.quantized, part.view, begin, end - begin, dtype, to));
      continue;
    }
    if (part.view.contiguous()) {
      RETURN_IF_ERROR(CopyElements(part.tensor, part.view.offset + begin - part.view.first,
                                   end - begin, dtype, to));
      continue;
    }
    ASSIGN_OR_RETURN(const at::ScalarType from, TypeOf(part.tensor));
    const int64_t size = io::SizeOf(part.tensor.dtype);
    const auto gather = [&](int64_t at, int64_t n, std::byte* into) {
      GatherElements(part.view, at, n, size, part.tensor.bytes.data(), into);
    };
    if (from == dtype) {
      gather(begin, end - begin, to);
    } else {
      Convert(begin, end - begin, from, dtype, to, gather);
    }
  }
  return absl::OkStatus();
}

void StoredSource::ReleasePages() const {
  for (const Part& part : parts_) {
    io::ReleasePages(part.tensor.bytes);
    if (part.quantized != nullptr) part.quantized->ReleasePages();
  }
}

absl::Status CopyElements(const io::TensorView& tensor, int64_t first, int64_t count,
                          at::ScalarType dtype, void* out) {
  ASSIGN_OR_RETURN(const at::ScalarType from, TypeOf(tensor));
  if (first < 0 || count < 0 || first + count > tensor.num_elements()) {
    return absl::OutOfRangeError(absl::StrCat("elements [", first, ", ", first + count,
                                              ") of tensor ", tensor.name, ", which has ",
                                              tensor.num_elements()));
  }
  const int64_t size = io::SizeOf(tensor.dtype);
  if (from == dtype) {
    std::memcpy(out, tensor.bytes.data() + first * size, static_cast<size_t>(count * size));
    return absl::OkStatus();
  }
  Convert(first, count, from, dtype, out, [&](int64_t at, int64_t n, std::byte* into) {
    std::memcpy(into, tensor.bytes.data() + at * size, static_cast<size_t>(n * size));
  });
  return absl::OkStatus();
}

}  // namespace tandem::model
