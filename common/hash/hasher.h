// xxh3-128: what tells whether bytes are the same. It finds accidents, at about 10 GB/s on a core;
// against somebody who forges bytes there is security::Digest.
//
//   hash::Hasher hasher;
//   for (const std::string& line : lines) hasher.Update(line);
//   std::string hex = hasher.Hex();
#ifndef TANDEM_COMMON_HASH_HASHER_H_
#define TANDEM_COMMON_HASH_HASHER_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

struct XXH3_state_s;

namespace tandem::hash {

// Hashes bytes as they come. Move-only; one thread at a time.
class Hasher {
 public:
  Hasher();

  void Update(const void* data, size_t size);
  void Update(absl::string_view bytes) { Update(bytes.data(), bytes.size()); }
  // Of everything since construction or Reset(): 32 hexadecimal digits.
  std::string Hex() const;
  void Reset();

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

// Of bytes that lie together.
std::string HexDigest(absl::string_view bytes);
std::string HexDigest(absl::Span<const std::byte> bytes);

}  // namespace tandem::hash

#endif  // TANDEM_COMMON_HASH_HASHER_H_
