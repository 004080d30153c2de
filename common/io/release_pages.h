// Releases the memory of parts of a mapped file that are not needed for now.
#ifndef TANDEM_COMMON_IO_RELEASE_PAGES_H_
#define TANDEM_COMMON_IO_RELEASE_PAGES_H_

#include <cstddef>

#include "absl/types/span.h"

namespace tandem::io {

// Removes the pages of these bytes of a MappedFile from the process's resident set; a later access
// loads them again.
void ReleasePages(absl::Span<const std::byte> bytes);

}  // namespace tandem::io

#endif  // TANDEM_COMMON_IO_RELEASE_PAGES_H_
