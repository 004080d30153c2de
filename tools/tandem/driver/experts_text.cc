#include "tools/tandem/driver/experts_text.h"

#include <zstd.h>

#include <cstdint>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/model/routed_experts.h"

namespace tandem::driver {

std::string ExpertsText(absl::string_view bytes) {
  std::string compressed(ZSTD_compressBound(bytes.size()), '\0');
  // Cannot fail: there is room for the worst case.
  compressed.resize(ZSTD_compress(compressed.data(), compressed.size(), bytes.data(), bytes.size(),
                                  ZSTD_CLEVEL_DEFAULT));
  return absl::Base64Escape(compressed);
}

absl::StatusOr<std::string> ExpertsOfText(absl::string_view text) {
  std::string compressed;
  if (!absl::Base64Unescape(text, &compressed)) {
    return absl::InvalidArgumentError("expected base64");
  }
  const uint64_t size = ZSTD_getFrameContentSize(compressed.data(), compressed.size());
  if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN) {
    return absl::InvalidArgumentError("expected a zstd frame that states its size, in base64");
  }
  if (size > static_cast<uint64_t>(model::kMaxRoutedBytes)) {
    return absl::InvalidArgumentError(absl::StrCat("expected at most ", model::kMaxRoutedBytes,
                                                   " bytes of experts, found ", size));
  }
  std::string bytes(size, '\0');
  const size_t written =
      ZSTD_decompress(bytes.data(), bytes.size(), compressed.data(), compressed.size());
  if (ZSTD_isError(written) || written != bytes.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected a zstd frame: ",
                     ZSTD_isError(written) ? ZSTD_getErrorName(written) : "too short"));
  }
  return bytes;
}

}  // namespace tandem::driver
