#include "common/weights/tensor_digests.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/hash/hasher.h"

namespace tandem::weights {
std::string ModelDigest(const std::vector<common::v1::TensorDigest>& digests) {
  hash::Hasher hasher;
  for (const auto& digest : digests) hasher.Update(digest.digest());
  return hasher.Hex();
}

absl::StatusOr<DigestSum> ParseDigest(const std::string& hex) {
  DigestSum sum;
  bool good = hex.size() == 32;
  for (size_t lane = 0; good && lane < 2; ++lane) {
    const std::string part = hex.substr(16 * lane, 16);
    good = part.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (good) sum.lanes[lane] = std::stoull(part, nullptr, 16);
  }
  if (!good) return absl::DataLossError(absl::StrCat("digest: expected 32 digits, found ", hex));
  return sum;
}

DigestRun RunOfHeld(const common::v1::TensorEntry& tensor, absl::Span<const std::byte> bytes) {
  DigestRun run;
  run.bytes = bytes.data();
  run.row_bytes = static_cast<int64_t>(bytes.size());
  if (!tensor.has_box()) return run;
  const auto& box = tensor.box();
  const int64_t held = box.rows() * box.columns();
  if (held == 0) return run;
  const int64_t element = static_cast<int64_t>(bytes.size()) / held;
  int64_t columns = 1;
  for (int dim = 1; dim < tensor.shape_size(); ++dim) columns *= tensor.shape(dim);
  run.offset = (box.first_row() * columns + box.first_column()) * element;
  run.stride = columns * element;
  run.row_bytes = box.columns() * element;
  run.rows = box.rows();
  return run;
}

void AppendPart(const DigestRun& run, int64_t offset, int64_t size, std::vector<DigestRun>& parts) {
  const auto append = [&](int64_t into_row, int64_t row_bytes, int64_t rows) {
    if (row_bytes <= 0 || rows <= 0) return;
    DigestRun part = run;
    part.bytes = run.bytes + offset;
    part.offset = run.offset + offset / run.row_bytes * run.stride + into_row;
    part.row_bytes = row_bytes;
    part.rows = rows;
    parts.push_back(part);
    offset += row_bytes * rows;
    size -= row_bytes * rows;
  };
  if (size <= 0) return;
  if (const int64_t into_row = offset % run.row_bytes; into_row > 0) {
    append(into_row, std::min(size, run.row_bytes - into_row), 1);
  }
  append(0, run.row_bytes, size / run.row_bytes);
  append(0, size, 1);
}

namespace {

// The runs of bytes that are held from byte `offset` on, where they are.
std::vector<DigestRun> PartsOfHeld(const common::v1::TensorEntry& tensor, int64_t held_bytes,
                                   int64_t offset, absl::Span<const std::byte> bytes) {
  // Address of the held part's first byte, as if all of it were in memory.
  const auto at_start = reinterpret_cast<uintptr_t>(bytes.data()) - static_cast<uintptr_t>(offset);
  const DigestRun held = RunOfHeld(
      tensor, {reinterpret_cast<const std::byte*>(at_start), static_cast<size_t>(held_bytes)});
  std::vector<DigestRun> parts;
  AppendPart(held, offset, static_cast<int64_t>(bytes.size()), parts);
  return parts;
}

}  // namespace

void AddHeld(const common::v1::TensorEntry& tensor, int64_t held_bytes, int64_t offset,
             absl::Span<const std::byte> bytes, DigestSum& sum) {
  for (const DigestRun& part : PartsOfHeld(tensor, held_bytes, offset, bytes)) {
    AddStrided(part.offset, part.stride, part.row_bytes,
               {part.bytes, static_cast<size_t>(part.row_bytes * part.rows)}, sum);
  }
}

void CopyHeld(const common::v1::TensorEntry& tensor, int64_t held_bytes, int64_t offset,
              absl::Span<const std::byte> bytes, std::byte* to, DigestSum& sum, bool streams) {
  for (const DigestRun& part : PartsOfHeld(tensor, held_bytes, offset, bytes)) {
    // Rows lie one after another: where they do in the tensor as well, they are one.
    const bool is_one = part.rows == 1 || part.stride == part.row_bytes;
    const int64_t row_bytes = is_one ? part.row_bytes * part.rows : part.row_bytes;
    const int64_t rows = is_one ? 1 : part.rows;
    for (int64_t row = 0; row < rows; ++row) {
      const absl::Span<const std::byte> from(part.bytes + row * row_bytes,
                                             static_cast<size_t>(row_bytes));
      (streams ? StreamRange : CopyRange)(part.offset + row * part.stride, from, to, sum);
      to += row_bytes;
    }
  }
}

DigestSum SumOfHeld(const common::v1::TensorEntry& tensor, absl::Span<const std::byte> bytes) {
  const DigestRun run = RunOfHeld(tensor, bytes);
  DigestSum sum;
  AddStrided(run.offset, run.stride, run.row_bytes, bytes, sum);
  return sum;
}

common::v1::TensorDigest MakeTensorDigest(const common::v1::TensorEntry& tensor,
                                          const DigestSum& sum) {
  common::v1::TensorDigest digest;
  digest.set_name(tensor.name());
  digest.set_digest(sum.Hex());
  return digest;
}

std::vector<common::v1::TensorDigest> MakeTensorDigests(const common::v1::Manifest& manifest,
                                                        const std::vector<DigestSum>& sums) {
  std::vector<common::v1::TensorDigest> digests;
  for (int i = 0; i < manifest.tensors_size(); ++i) {
    digests.push_back(MakeTensorDigest(manifest.tensors(i), sums[i]));
  }
  return digests;
}

}  // namespace tandem::weights
