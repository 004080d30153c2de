// Digests of weights: xxh3-128, which depends on every byte and its position.
//
// A tensor's digest is over its wire bytes, little endian and row-major. A model's digest is over
// its tensors' digests in manifest order, so that ranks that hold different tensors can be
// combined.
#ifndef TANDEM_COMMON_WEIGHTS_DIGEST_H_
#define TANDEM_COMMON_WEIGHTS_DIGEST_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tandem/common/v1/weights.pb.h"

struct XXH3_state_s;

namespace tandem::weights {

// Hashes bytes as they come. One thread.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;

  void Update(const void* data, size_t size);
  // Of everything since construction or Reset().
  std::string Hex() const;
  void Reset();

 private:
  XXH3_state_s* state_;
};

std::string HexDigest(absl::Span<const std::byte> bytes);

std::string ModelDigest(const std::vector<common::v1::TensorDigest>& digests);

// Digests the tensors of a manifest from their bytes as they stream by in canonical order: tensor
// by tensor, in any cuts. One thread.
class StreamDigests {
 public:
  explicit StreamDigests(const common::v1::Manifest& manifest);

  // The next bytes of `tensor`. `end` says that they are its last.
  void Add(int tensor, const void* data, size_t size, bool end);

  // One for each tensor, in order. Tensors without bytes have the digest of nothing.
  const std::vector<common::v1::TensorDigest>& digests() const { return digests_; }

 private:
  Hasher hasher_;
  std::vector<common::v1::TensorDigest> digests_;
};

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_DIGEST_H_
