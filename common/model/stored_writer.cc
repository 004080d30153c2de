#include "common/model/stored_writer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/model/kernels/element.h"
#include "common/model/parameter.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"

namespace tandem::model {

namespace {

template <typename T>
std::vector<std::byte> BytesOf(double value) {
  T element;
  kernels::FromFloat(static_cast<float>(value), element);
  const auto* const bytes = reinterpret_cast<const std::byte*>(&element);
  return {bytes, bytes + sizeof(T)};
}

absl::StatusOr<std::vector<std::byte>> ElementOf(const StoredConstant& constant, io::DType dtype) {
  if (dtype == io::DType::kF32) return BytesOf<float>(constant.value);
  if (dtype == io::DType::kBF16) return BytesOf<kernels::BFloat16>(constant.value);
  return absl::UnimplementedError(absl::StrCat("tensor ", constant.tensor,
                                               ": expected an export in float32 or bfloat16, not ",
                                               io::TorchName(dtype)));
}

}  // namespace

absl::Status ForStoredPieces(const StoredLayout& layout, int64_t max_elements,
                             absl::FunctionRef<absl::Status(const StoredPiece&)> body) {
  for (const StoredTensor& tensor : layout.tensors()) {
    for (const StoredTensor::Part& part : tensor.parts) {
      const StoredView& view = layout.ViewsOf(part.parameter)[part.view];
      const int64_t end = view.first + view.numel();
      for (int64_t first = view.first; first < end; first += max_elements) {
        const int64_t count = std::min(max_elements, end - first);
        const bool is_last = &part == &tensor.parts.back() && first + count == end;
        RETURN_IF_ERROR(body({&tensor, &view, part.parameter, first, count, is_last}));
      }
    }
  }
  return absl::OkStatus();
}

std::optional<io::ModelFolder> OpenExportSource(const std::string& path) {
  absl::StatusOr<io::ModelFolder> folder = io::ModelFolder::Open(path);
  if (!folder.ok()) return std::nullopt;
  return *std::move(folder);
}

absl::StatusOr<StoredWriter> StoredWriter::Create(const std::string& path,
                                                  const StoredLayout& layout, io::DType dtype,
                                                  const io::ModelFolder* source,
                                                  const io::ModelFolderWriter::Options& options) {
  std::vector<io::TensorDeclaration> tensors;
  for (const StoredTensor& tensor : layout.tensors()) {
    tensors.push_back({tensor.name, layout.DTypeOf(tensor, dtype), tensor.shape});
  }
  for (const StoredConstant& constant : layout.constants()) {
    tensors.push_back({constant.tensor, dtype, {}});
  }
  ASSIGN_OR_RETURN(io::ModelFolderWriter writer,
                   io::ModelFolderWriter::Create(path, std::move(tensors), options));
  if (layout.quantization() != nullptr) {
    telemetry::LogInfo("the export is not quantised, though the model that it began from is",
                       {{"folder", path},
                        {"dtype", io::TorchName(dtype)},
                        {"source", options.source_folder},
                        {"method", layout.quantization()->method()}});
  }
  return StoredWriter(std::move(writer), layout, dtype, source);
}

absl::Status StoredWriter::Append(const StoredPiece& piece, absl::Span<const std::byte> elements) {
  if (piece.view->IsWholeTensor()) return Write(piece.tensor->name, elements);
  if (assembled_.empty()) BeginAssembly(*piece.tensor);
  ScatterElements(*piece.view, piece.first, piece.count,
                  io::SizeOf(layout_->DTypeOf(*piece.tensor, dtype_)), elements.data(),
                  assembled_.data());
  if (!piece.is_last) return absl::OkStatus();
  const std::vector<std::byte> tensor = std::move(assembled_);
  assembled_.clear();
  return Write(piece.tensor->name, tensor);
}

absl::Status StoredWriter::Commit() {
  for (const StoredConstant& constant : layout_->constants()) {
    ASSIGN_OR_RETURN(const std::vector<std::byte> element, ElementOf(constant, dtype_));
    RETURN_IF_ERROR(Write(constant.tensor, element));
  }
  return writer_.Commit();
}

absl::Status StoredWriter::Write(const std::string& name, absl::Span<const std::byte> bytes) {
  size_bytes_ += static_cast<int64_t>(bytes.size());
  return writer_.Append(name, bytes);
}

void StoredWriter::BeginAssembly(const StoredTensor& tensor) {
  const io::DType dtype = layout_->DTypeOf(tensor, dtype_);
  assembled_.resize(static_cast<size_t>(NumElements(tensor.shape) * io::SizeOf(dtype)));
  if (!tensor.has_gaps || source_ == nullptr) return;
  const absl::StatusOr<io::TensorView> stored = source_->Find(tensor.name);
  if (!stored.ok() || stored->dtype != dtype || stored->shape != tensor.shape) return;
  std::copy(stored->bytes.begin(), stored->bytes.end(), assembled_.begin());
}

}  // namespace tandem::model
