#include "common/model/load_parameters.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "common/io/release_pages.h"
#include "common/model/segment_box.h"
#include "common/model/torch_dtype.h"
#include "common/status/status_macros.h"

namespace tandem::model {
namespace {

constexpr int64_t kElementsAtOnce = 1 << 16;
constexpr size_t kBytesAtOnce = size_t{4} << 20;

absl::Status CheckElementType(const io::ModelFolder& folder, const io::TensorView& tensor) {
  if (TorchDType(tensor.dtype).has_value()) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      folder.path(), ": tensor ", tensor.name, " has element type ", io::Name(tensor.dtype),
      "; expected F32, BF16 or F16: export the model in one of these"));
}

// Compares in pieces, so that little of two large tensors is resident at a time.
bool SameBytes(absl::Span<const std::byte> a, absl::Span<const std::byte> b) {
  if (a.size() != b.size()) return false;
  for (size_t at = 0; at < a.size(); at += kBytesAtOnce) {
    const auto piece_a = a.subspan(at, kBytesAtOnce);
    const auto piece_b = b.subspan(at, kBytesAtOnce);
    if (piece_a != piece_b) return false;
    io::ReleasePages(piece_a);
    io::ReleasePages(piece_b);
  }
  return true;
}

// Tied parameters that the folder stores twice must agree, or one of them would be lost.
absl::Status CheckTies(const ParameterTable& table, const io::ModelFolder& folder,
                       const io::TensorView& tensor, const std::string& name) {
  for (const std::string& alias : AliasesOf(table, name)) {
    if (!folder.Contains(alias) || !folder.Contains(name)) continue;
    ASSIGN_OR_RETURN(const io::TensorView other, folder.Find(alias));
    const bool same = other.dtype == tensor.dtype && other.shape == tensor.shape &&
                      SameBytes(other.bytes, tensor.bytes);
    if (!same) {
      return absl::FailedPreconditionError(absl::StrCat(
          folder.path(), ": config.json ties ", alias, " to ", name,
          ", but the folder holds two different tensors; set \"tie_word_embeddings\" to false or "
          "remove one"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status LoadParameters(const io::ModelFolder& folder, const ParameterTable& table,
                            const SegmentSink& sink) {
  const ParameterMismatch mismatch = CompareParameters(table, folder);
  if (!mismatch.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        folder.path(), ": the tensors do not match config.json: ", mismatch.ToString()));
  }
  for (const ParameterTable::SegmentRef ref : table.segments()) {
    if (IsNewHead(table, ref, folder)) continue;
    const std::string& name = table.segment(ref).name;
    ASSIGN_OR_RETURN(const io::TensorView tensor, FindSegment(table, folder, name));
    RETURN_IF_ERROR(CheckElementType(folder, tensor));
    RETURN_IF_ERROR(CheckTies(table, folder, tensor, name));
  }
  for (const ParameterTable::SegmentRef ref : table.segments()) {
    if (IsNewHead(table, ref, folder)) continue;
    const std::string& name = table.segment(ref).name;
    ASSIGN_OR_RETURN(const io::TensorView tensor, FindSegment(table, folder, name));
    RETURN_IF_ERROR(sink(ref, tensor)) << "while loading " << name << " of " << folder.path();
    io::ReleasePages(tensor.bytes);  // so that little of the files is resident at a time
  }
  return absl::OkStatus();
}

absl::Status LoadParameters(const io::ModelFolder& folder, Arena& arena) {
  size_t i = 0;
  return LoadParameters(
      folder, arena.table(),
      [&](ParameterTable::SegmentRef ref, const io::TensorView& tensor) -> absl::Status {
        const Segment& part = arena.table().segment(ref);
        const at::Tensor segment = arena.SegmentTensor(i);
        if (segment.is_cpu()) {
          void* const out = arena.SegmentBytes(i++).data();
          return CopySegment(part, tensor, 0, part.numel, arena.dtype(), out);
        }
        at::Tensor staged = at::empty(segment.sizes(), arena.dtype());
        RETURN_IF_ERROR(
            CopySegment(part, tensor, 0, part.numel, arena.dtype(), staged.mutable_data_ptr()));
        segment.copy_(staged);
        ++i;
        return absl::OkStatus();
      });
}

absl::Status CopySegment(const Segment& segment, const io::TensorView& tensor, int64_t first,
                         int64_t count, at::ScalarType dtype, void* out) {
  const auto element_size = static_cast<int64_t>(c10::elementSize(dtype));
  return ForRunsOfBox(segment, first, count, [&](const BoxRun& run) {
    return CopyElements(tensor, run.logical, run.count, dtype,
                        static_cast<std::byte*>(out) + (run.local - first) * element_size);
  });
}

absl::Status CopyElements(const io::TensorView& tensor, int64_t first, int64_t count,
                          at::ScalarType dtype, void* out) {
  const std::optional<at::ScalarType> source_type = TorchDType(tensor.dtype);
  if (!source_type.has_value()) {
    return absl::UnimplementedError(absl::StrCat("tensor ", tensor.name, " has element type ",
                                                 io::Name(tensor.dtype),
                                                 "; expected F32, BF16 or F16"));
  }
  if (first < 0 || count < 0 || first + count > tensor.num_elements()) {
    return absl::OutOfRangeError(absl::StrCat("elements [", first, ", ", first + count,
                                              ") of tensor ", tensor.name, ", which has ",
                                              tensor.num_elements()));
  }
  const int64_t source_size = io::SizeOf(tensor.dtype);
  const std::byte* source = tensor.bytes.data() + first * source_size;
  if (*source_type == dtype) {
    std::memcpy(out, source, static_cast<size_t>(count * source_size));
    return absl::OkStatus();
  }
  // Copies through an aligned buffer, because the file's bytes may start at any address.
  const at::Tensor aligned = at::empty({std::min(count, kElementsAtOnce)}, *source_type);
  at::Tensor destination = at::from_blob(out, {count}, at::TensorOptions(dtype));
  for (int64_t done = 0; done < count; done += kElementsAtOnce) {
    const int64_t n = std::min(count - done, kElementsAtOnce);
    std::memcpy(aligned.mutable_data_ptr(), source + done * source_size,
                static_cast<size_t>(n * source_size));
    destination.narrow(0, done, n).copy_(aligned.narrow(0, 0, n));
  }
  return absl::OkStatus();
}

}  // namespace tandem::model
