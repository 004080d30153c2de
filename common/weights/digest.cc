#include "common/weights/digest.h"

#include <xxhash.h>

#include <new>

#include "absl/strings/escaping.h"
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

StreamDigests::StreamDigests(const common::v1::Manifest& manifest)
    : digests_(manifest.tensors_size()) {
  const std::string nothing = HexDigest({});
  for (int i = 0; i < manifest.tensors_size(); ++i) {
    digests_[i].set_name(manifest.tensors(i).name());
    digests_[i].set_digest(nothing);
  }
}

void StreamDigests::Add(int tensor, const void* data, size_t size, bool end) {
  hasher_.Update(data, size);
  if (!end) return;
  digests_[tensor].set_digest(hasher_.Hex());
  hasher_.Reset();
}

}  // namespace tandem::weights
