// Hasher: XXH3-128 checksums. They detect accidental corruption, at about 10 GB/s per core; use
// security::Digest against deliberate forgery.
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

// Incremental hash. Move-only; one thread at a time.
class Hasher {
 public:
  Hasher();

  void Update(const void* data, size_t size);
  void Update(absl::string_view bytes) { Update(bytes.data(), bytes.size()); }
  // Returns the hash of all bytes since construction or Reset(), as 32 hexadecimal digits.
  std::string Hex() const;
  void Reset();

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

// One-shot hash of contiguous bytes, as 32 hexadecimal digits.
std::string HexDigest(absl::string_view bytes);
std::string HexDigest(absl::Span<const std::byte> bytes);

}  // namespace tandem::hash

#endif  // TANDEM_COMMON_HASH_HASHER_H_
