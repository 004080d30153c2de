// xxh3-128 of bytes that come in pieces.
//
//   io::StreamDigest digest;
//   for (const std::string& line : lines) digest.Update(line);
//   std::string hex = digest.Hex();
#ifndef TANDEM_COMMON_IO_STREAM_DIGEST_H_
#define TANDEM_COMMON_IO_STREAM_DIGEST_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

struct XXH3_state_s;

namespace tandem::io {

// Move-only; one thread at a time. About 10 GB/s: less than reading costs.
class StreamDigest {
 public:
  StreamDigest();

  void Update(absl::string_view bytes);

  // 32 hex digits, of what came so far.
  std::string Hex() const;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

// Of a regular file, read a piece at a time. Errors as ReadFile().
absl::StatusOr<std::string> DigestFile(const std::string& path);

}  // namespace tandem::io

#endif  // TANDEM_COMMON_IO_STREAM_DIGEST_H_
