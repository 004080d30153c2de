// Giving back the memory of bytes of a mapped file that are not needed for now.
#ifndef TANDEM_COMMON_IO_RELEASE_PAGES_H_
#define TANDEM_COMMON_IO_RELEASE_PAGES_H_

#include <cstddef>

#include "absl/types/span.h"

namespace tandem::io {

// The pages of these bytes of a MappedFile leave the process's resident set, and come back where
// they are touched.
void ReleasePages(absl::Span<const std::byte> bytes);

}  // namespace tandem::io

#endif  // TANDEM_COMMON_IO_RELEASE_PAGES_H_
