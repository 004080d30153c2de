#include "common/model/load_parameters.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/model/compare_parameters.h"
#include "common/model/segment_box.h"
#include "common/model/stored_layout.h"
#include "common/model/torch_dtype.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"

namespace tandem::model {
namespace {

constexpr int64_t kElementsCompared = int64_t{1} << 18;
constexpr double kBFloat16Rounding = 1.0 / 256;  // relative

// Compares in pieces, so that little of two large tensors is resident at a time.
absl::StatusOr<bool> SameElements(const StoredSource& a, const StoredSource& b) {
  if (a.dtype() != b.dtype() || a.num_elements() != b.num_elements()) return false;
  const at::ScalarType type = TorchDType(a.dtype()).value();
  const auto size = static_cast<int64_t>(c10::elementSize(type));
  std::vector<std::byte> piece_a(static_cast<size_t>(kElementsCompared * size));
  std::vector<std::byte> piece_b(piece_a.size());
  for (int64_t first = 0; first < a.num_elements(); first += kElementsCompared) {
    const int64_t count = std::min(kElementsCompared, a.num_elements() - first);
    RETURN_IF_ERROR(a.Copy(first, count, type, piece_a.data()));
    RETURN_IF_ERROR(b.Copy(first, count, type, piece_b.data()));
    if (std::memcmp(piece_a.data(), piece_b.data(), static_cast<size_t>(count * size)) != 0) {
      return false;
    }
    a.ReleasePages();
    b.ReleasePages();
  }
  return true;
}

// Tied parameters that the folder stores twice must agree, or one of them would be lost.
absl::Status CheckTies(const StoredLayout& layout, const io::ModelFolder& folder) {
  if (layout.tied_parameter() < 0) return absl::OkStatus();
  const absl::Span<const StoredView> own =
      layout.ViewsOf(static_cast<size_t>(layout.tied_parameter()));
  const absl::Span<const StoredView> head = layout.tied_views();
  const auto stored = [&](const StoredView& view) { return folder.Contains(view.tensor); };
  if (!std::all_of(own.begin(), own.end(), stored) ||
      !std::all_of(head.begin(), head.end(), stored)) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const StoredSource a, StoredSource::Find(folder, own, layout.quantization()));
  ASSIGN_OR_RETURN(const StoredSource b, StoredSource::Find(folder, head, layout.quantization()));
  ASSIGN_OR_RETURN(const bool same, SameElements(a, b));
  if (same) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      folder.path(), ": config.json ties ", head[0].tensor, " to ", own[0].tensor,
      ", but the folder holds two different tensors; set \"tie_word_embeddings\" to false or "
      "remove one"));
}

// Passes if the folder lacks the tensor: its value is known.
absl::Status CheckConstant(const StoredConstant& constant, const io::ModelFolder& folder) {
  if (!folder.Contains(constant.tensor)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const io::TensorView view, folder.Find(constant.tensor));
  const std::optional<at::ScalarType> type = TorchDType(view.dtype);
  if (type.has_value() && view.bytes.size() == c10::elementSize(*type)) {
    at::Tensor found = at::empty({}, *type);
    std::memcpy(found.mutable_data_ptr(), view.bytes.data(), view.bytes.size());
    // A folder in float32 may have been one in bfloat16.
    const double distance = std::abs(found.item<double>() - constant.value);
    if (distance <= std::abs(constant.value) * kBFloat16Rounding) return absl::OkStatus();
  }
  return absl::UnimplementedError(absl::StrCat(
      folder.path(), ": tensor ", constant.tensor, ": expected one element, ", constant.value,
      ", as all models of this family have; found another value or shape"));
}

// Returns the layout of a folder that has all tensors in their shapes.
absl::StatusOr<StoredLayout> CheckedLayout(const io::ModelFolder& folder,
                                           const ParameterTable& table, bool log = true) {
  ASSIGN_OR_RETURN(StoredLayout layout, StoredLayout::Create(table, &folder));
  const ParameterMismatch mismatch = CompareParameters(layout, folder);
  if (!mismatch.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        folder.path(), ": the tensors do not match config.json: ", mismatch.ToString()));
  }
  for (const StoredConstant& constant : layout.constants()) {
    RETURN_IF_ERROR(CheckConstant(constant, folder));
  }
  if (log && !mismatch.ignored.empty()) {
    telemetry::LogInfo("tensors that are no parameters are left out",
                       {{"folder", folder.path()},
                        {"tensors", mismatch.ignored.size()},
                        {"first", mismatch.ignored.front()}});
  }
  if (log && layout.quantization() != nullptr) {
    telemetry::LogInfo("quantised weights become float32 or bfloat16 as they are read",
                       {{"folder", folder.path()}, {"method", layout.quantization()->method()}});
  }
  return layout;
}

}  // namespace

absl::Status CheckParameters(const io::ModelFolder& folder, const ParameterTable& table) {
  return CheckedLayout(folder, table, /*log=*/false).status();
}

absl::Status LoadParameters(const io::ModelFolder& folder, const ParameterTable& table,
                            const SegmentSink& sink) {
  ASSIGN_OR_RETURN(const StoredLayout layout, CheckedLayout(folder, table));
  const std::vector<ParameterTable::SegmentRef>& segments = table.segments();
  std::vector<std::optional<StoredSource>> sources(segments.size());
  for (size_t i = 0; i < segments.size(); ++i) {
    if (IsNewHead(table, segments[i], folder)) continue;
    ASSIGN_OR_RETURN(StoredSource source, StoredSource::Find(folder, FindViews(layout, folder, i),
                                                             layout.quantization()));
    sources[i].emplace(std::move(source));
  }
  RETURN_IF_ERROR(CheckTies(layout, folder));
  for (size_t i = 0; i < segments.size(); ++i) {
    if (!sources[i].has_value()) continue;
    RETURN_IF_ERROR(sink(segments[i], *sources[i]))
        << "while loading " << layout.parameters()[i].name << " of " << folder.path();
    sources[i]->ReleasePages();  // so that little of the files is resident at a time
  }
  return absl::OkStatus();
}

absl::Status LoadParameters(const io::ModelFolder& folder, Arena& arena) {
  size_t i = 0;
  return LoadParameters(
      folder, arena.table(),
      [&](ParameterTable::SegmentRef ref, const StoredSource& source) -> absl::Status {
        const Segment& part = arena.table().segment(ref);
        const at::Tensor segment = arena.SegmentTensor(i);
        const at::ScalarType dtype = segment.scalar_type();
        if (segment.is_cpu()) {
          void* const out = arena.SegmentBytes(i++).data();
          return CopySegment(part, source, 0, part.numel, dtype, out);
        }
        at::Tensor staged = at::empty(segment.sizes(), dtype);
        RETURN_IF_ERROR(CopySegment(part, source, 0, part.numel, dtype, staged.mutable_data_ptr()));
        segment.copy_(staged);
        ++i;
        return absl::OkStatus();
      });
}

absl::Status CopySegment(const Segment& segment, const StoredSource& source, int64_t first,
                         int64_t count, at::ScalarType dtype, void* out) {
  const auto element_size = static_cast<int64_t>(c10::elementSize(dtype));
  return ForRunsOfBox(segment, first, count, [&](const BoxRun& run) {
    return source.Copy(run.logical, run.count, dtype,
                       static_cast<std::byte*>(out) + (run.local - first) * element_size);
  });
}

}  // namespace tandem::model
