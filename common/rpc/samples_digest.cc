#include "common/rpc/samples_digest.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <xxhash.h>

#include <array>
#include <cstdint>
#include <cstdlib>

#include "absl/strings/escaping.h"

namespace tandem::rpc {
namespace {

std::string ToHex(XXH128_hash_t hash) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(canonical.digest), sizeof(canonical.digest)));
}

}  // namespace

struct SamplesDigest::State {
  XXH3_state_t* xxh3 = XXH3_createState();
  ~State() { XXH3_freeState(xxh3); }
};

SamplesDigest::SamplesDigest() : state_(std::make_unique<State>()) {
  if (state_->xxh3 == nullptr) std::abort();  // out of memory
  XXH3_128bits_reset(state_->xxh3);
}

SamplesDigest::~SamplesDigest() = default;

void SamplesDigest::Add(const common::v1::Sample& sample) {
  buffer_.clear();
  {
    google::protobuf::io::StringOutputStream stream(&buffer_);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    if (!sample.SerializeToCodedStream(&coded)) std::abort();  // more than 2 GiB
  }
  std::array<unsigned char, 8> length;
  for (size_t i = 0; i < length.size(); ++i) {
    length[i] = static_cast<unsigned char>(static_cast<uint64_t>(buffer_.size()) >> (8 * i));
  }
  XXH3_128bits_update(state_->xxh3, length.data(), length.size());
  XXH3_128bits_update(state_->xxh3, buffer_.data(), buffer_.size());
}

std::string SamplesDigest::Hex() const { return ToHex(XXH3_128bits_digest(state_->xxh3)); }

std::string DigestOfBytes(absl::string_view bytes) {
  return ToHex(XXH3_128bits(bytes.data(), bytes.size()));
}

}  // namespace tandem::rpc
