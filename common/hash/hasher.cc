#include "common/hash/hasher.h"

#include <xxhash.h>

#include <new>

#include "absl/strings/str_format.h"

namespace tandem::hash {
namespace {

std::string ToHex(XXH128_hash_t hash) {
  return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
}

}  // namespace

void Hasher::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

Hasher::Hasher() : state_(XXH3_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
  Reset();
}

void Hasher::Update(const void* data, size_t size) {
  XXH3_128bits_update(state_.get(), data, size);
}

std::string Hasher::Hex() const { return ToHex(XXH3_128bits_digest(state_.get())); }

void Hasher::Reset() { XXH3_128bits_reset(state_.get()); }

std::string HexDigest(absl::string_view bytes) {
  return ToHex(XXH3_128bits(bytes.data(), bytes.size()));
}

std::string HexDigest(absl::Span<const std::byte> bytes) {
  return ToHex(XXH3_128bits(bytes.data(), bytes.size()));
}

}  // namespace tandem::hash
