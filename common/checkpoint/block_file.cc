#include "common/checkpoint/block_file.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/hash/hasher.h"
#include "common/io/file_util.h"
#include "common/status/status_macros.h"

namespace tandem::checkpoint {

absl::StatusOr<BlockFileWriter> BlockFileWriter::Create(const std::string& path) {
  ASSIGN_OR_RETURN(io::AtomicFile file, io::AtomicFile::Create(path));
  return BlockFileWriter(std::move(file));
}

absl::Status BlockFileWriter::Append(absl::Span<const std::byte> bytes) {
  digests_.size_bytes += static_cast<int64_t>(bytes.size());
  while (!bytes.empty()) {
    const size_t count = std::min(bytes.size(), static_cast<size_t>(kBlockBytes) - block_.size());
    block_.append(reinterpret_cast<const char*>(bytes.data()), count);
    bytes.remove_prefix(count);
    if (block_.size() == static_cast<size_t>(kBlockBytes)) {
      RETURN_IF_ERROR(FlushBlock());
    }
  }
  return absl::OkStatus();
}

absl::Status BlockFileWriter::FlushBlock() {
  digests_.digests.push_back(hash::HexDigest(block_));
  RETURN_IF_ERROR(file_.Append(block_));
  block_.clear();
  return absl::OkStatus();
}

absl::StatusOr<BlockDigests> BlockFileWriter::Commit() {
  if (!block_.empty()) {
    RETURN_IF_ERROR(FlushBlock());
  }
  RETURN_IF_ERROR(file_.Commit());
  return std::move(digests_);
}

absl::StatusOr<BlockFileReader> BlockFileReader::Open(const std::string& path,
                                                      BlockDigests digests) {
  ASSIGN_OR_RETURN(host::FileDescriptor fd, io::OpenRegularFile(path));
  BlockFileReader reader(path, std::move(fd), std::move(digests));
  struct stat info;
  if (::fstat(reader.fd_.get(), &info) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot stat"));
  if (info.st_size != reader.digests_.size_bytes) {
    return absl::DataLossError(absl::StrFormat(
        "%s is damaged: it has %d bytes, but %d were written; use another checkpoint", path,
        info.st_size, reader.digests_.size_bytes));
  }
  return reader;
}

absl::Status BlockFileReader::LoadBlock(int64_t index) {
  if (index == loaded_) return absl::OkStatus();
  loaded_ = -1;
  const int64_t begin = index * digests_.block_bytes;
  block_.resize(static_cast<size_t>(std::min(digests_.block_bytes, digests_.size_bytes - begin)));
  size_t done = 0;
  while (done < block_.size()) {
    const ssize_t count = ::pread(fd_.get(), block_.data() + done, block_.size() - done,
                                  begin + static_cast<int64_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path_, ": cannot read"));
    if (count == 0) break;  // truncated since Open(): the digest will differ
    done += static_cast<size_t>(count);
  }
  block_.resize(done);
  if (hash::HexDigest(block_) != digests_.digests[static_cast<size_t>(index)]) {
    return absl::DataLossError(absl::StrFormat(
        "%s is damaged: bytes %d to %d differ from what was written; use another checkpoint", path_,
        begin, begin + static_cast<int64_t>(done)));
  }
  loaded_ = index;
  return absl::OkStatus();
}

absl::Status BlockFileReader::Read(int64_t offset, absl::Span<std::byte> out) {
  if (offset < 0 || offset + static_cast<int64_t>(out.size()) > digests_.size_bytes) {
    return absl::DataLossError(absl::StrFormat(
        "%s: expected bytes %d to %d, but the file has only %d; use another checkpoint", path_,
        offset, offset + static_cast<int64_t>(out.size()), digests_.size_bytes));
  }
  while (!out.empty()) {
    const int64_t index = offset / digests_.block_bytes;
    RETURN_IF_ERROR(LoadBlock(index));
    const auto within = static_cast<size_t>(offset - index * digests_.block_bytes);
    const size_t count = std::min(out.size(), block_.size() - within);
    std::memcpy(out.data(), block_.data() + within, count);
    out.remove_prefix(count);
    offset += static_cast<int64_t>(count);
  }
  return absl::OkStatus();
}

}  // namespace tandem::checkpoint
