#include "common/weights/digest.h"

#include <xxhash.h>

#include <algorithm>
#include <new>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tandem::weights {
namespace {

std::string ToHex(XXH128_hash_t hash) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(canonical.digest), sizeof(canonical.digest)));
}

}  // namespace

Hasher::Hasher() : state_(XXH3_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
  Reset();
}
Hasher::~Hasher() { XXH3_freeState(state_); }
void Hasher::Update(const void* data, size_t size) { XXH3_128bits_update(state_, data, size); }
std::string Hasher::Hex() const { return ToHex(XXH3_128bits_digest(state_)); }
void Hasher::Reset() { XXH3_128bits_reset(state_); }

std::string HexDigest(absl::Span<const std::byte> bytes) {
  return ToHex(XXH3_128bits(bytes.data(), bytes.size()));
}

std::string ModelDigest(const std::vector<common::v1::TensorDigest>& digests) {
  Hasher hasher;
  for (const auto& digest : digests) hasher.Update(digest.digest().data(), digest.digest().size());
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

void AddHeld(const common::v1::TensorEntry& tensor, absl::Span<const std::byte> held,
             int64_t offset, int64_t size, DigestSum& sum) {
  absl::Span<const std::byte> bytes = held.subspan(offset, size);
  const auto& box = tensor.box();
  const int64_t num_held = box.rows() * box.columns();
  if (!tensor.has_box() || num_held == 0) {
    AddRange(offset, bytes, sum);
    return;
  }
  const int64_t element = static_cast<int64_t>(held.size()) / num_held;
  int64_t columns = 1;
  for (int dim = 1; dim < tensor.shape_size(); ++dim) columns *= tensor.shape(dim);
  const int64_t stride = columns * element;
  const int64_t row_bytes = box.columns() * element;
  const int64_t begin = box.first_row() * stride + box.first_column() * element;
  // The rest of a row, whole rows, the beginning of one.
  const int64_t into_row = offset % row_bytes;
  int64_t row = offset / row_bytes;
  if (into_row > 0) {
    const int64_t head = std::min(size, row_bytes - into_row);
    AddRange(begin + row * stride + into_row, bytes.subspan(0, head), sum);
    bytes.remove_prefix(head);
    ++row;
  }
  const int64_t whole = static_cast<int64_t>(bytes.size()) / row_bytes;
  AddStrided(begin + row * stride, stride, row_bytes, bytes.subspan(0, whole * row_bytes), sum);
  bytes.remove_prefix(whole * row_bytes);
  if (!bytes.empty()) AddRange(begin + (row + whole) * stride, bytes, sum);
}

DigestSum SumOfHeld(const common::v1::TensorEntry& tensor, absl::Span<const std::byte> bytes) {
  DigestSum sum;
  AddHeld(tensor, bytes, 0, static_cast<int64_t>(bytes.size()), sum);
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
