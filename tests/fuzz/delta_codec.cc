// A delta that arrived: applied to a buffer, and nothing outside of it. And the way there and back
// of two buffers cut from the same bytes.
#include "common/weights/delta_codec.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

using tandem::weights::ApplyDelta;
using tandem::weights::EncodeDelta;

absl::Span<const std::byte> Bytes(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const std::byte*>(data), size};
}

// The buffer ends where its memory ends.
void Apply(const uint8_t* data, size_t size) {
  if (size < 2) return;
  std::vector<std::byte> buffer(size_t{data[0]} * 256 + data[1]);
  (void)ApplyDelta(Bytes(data + 2, size - 2), absl::MakeSpan(buffer));
}

void ThereAndBack(const uint8_t* data, size_t size, int element_size) {
  const size_t bytes = size / 2 / element_size * element_size;
  const auto base = Bytes(data, bytes), next = Bytes(data + bytes, bytes);
  std::vector<std::byte> coded(tandem::weights::MaxEncodedBytes(static_cast<int64_t>(bytes)));
  const auto sent = EncodeDelta(base, next, element_size, absl::MakeSpan(coded));
  if (!sent.ok()) std::abort();
  coded.resize(sent->coded_bytes);
  std::vector<std::byte> buffer(base.begin(), base.end());
  if (!ApplyDelta(coded, absl::MakeSpan(buffer)).ok() ||
      (bytes > 0 && std::memcmp(buffer.data(), next.data(), bytes) != 0)) {
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  if (data[0] == 0) {
    Apply(data + 1, size - 1);
  } else {
    ThereAndBack(data + 1, size - 1, data[0] % 2 == 0 ? 2 : 4);
  }
  return 0;
}
