// Decompresses files while they are read.
#ifndef TANDEM_TOOLS_TANDEM_DATASET_COMPRESSED_SOURCE_H_
#define TANDEM_TOOLS_TANDEM_DATASET_COMPRESSED_SOURCE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/io/byte_source.h"

namespace tandem::dataset {

// Sources of what gzip or zstd compressed; several members or frames in one file are joined.
// `path` is for messages. Read() returns INVALID_ARGUMENT for bytes that are not in the format and
// DATA_LOSS for a file that ends early. Memory: one buffer, and the format's window of at most 128
// MiB.
absl::StatusOr<std::unique_ptr<io::ByteSource>> OpenGzip(std::unique_ptr<io::ByteSource> compressed,
                                                         std::string path);
absl::StatusOr<std::unique_ptr<io::ByteSource>> OpenZstd(std::unique_ptr<io::ByteSource> compressed,
                                                         std::string path);

}  // namespace tandem::dataset

#endif  // TANDEM_TOOLS_TANDEM_DATASET_COMPRESSED_SOURCE_H_
