#include "tools/tandem/dataset/compressed_source.h"

#include <zlib.h>
#include <zstd.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace tandem::dataset {
namespace {

constexpr size_t kInputBytes = size_t{256} << 10;
// zlib's windows of any size, in gzip's format only.
constexpr int kGzipWindowBits = 15 + 16;

absl::Status EndsEarly(const std::string& path) {
  return absl::DataLossError(
      absl::StrCat(path, ": the compressed data ends early; copy the file again"));
}

// The compressed bytes, a buffer at a time.
class Input {
 public:
  explicit Input(std::unique_ptr<io::ByteSource> source)
      : source_(std::move(source)), buffer_(kInputBytes) {}

  // Reads more bytes if all were consumed; false at the end of the file.
  absl::StatusOr<bool> Fill() {
    if (begin_ < end_) return true;
    ASSIGN_OR_RETURN(end_, source_->Read(buffer_.data(), buffer_.size()));
    begin_ = 0;
    return end_ > 0;
  }
  char* data() { return buffer_.data() + begin_; }
  size_t size() const { return end_ - begin_; }
  void Consume(size_t count) { begin_ += count; }

 private:
  const std::unique_ptr<io::ByteSource> source_;
  std::vector<char> buffer_;
  size_t begin_ = 0;
  size_t end_ = 0;
};

class GzipSource : public io::ByteSource {
 public:
  GzipSource(std::unique_ptr<io::ByteSource> source, std::string path)
      : input_(std::move(source)), path_(std::move(path)) {}
  ~GzipSource() override { inflateEnd(&stream_); }

  absl::Status Begin() {
    if (inflateInit2(&stream_, kGzipWindowBits) == Z_OK) return absl::OkStatus();
    return absl::ResourceExhaustedError(absl::StrCat(path_, ": no memory to decompress"));
  }

  absl::StatusOr<size_t> Read(char* buffer, size_t size) override {
    stream_.next_out = reinterpret_cast<Bytef*>(buffer);
    stream_.avail_out = static_cast<uInt>(size);
    while (stream_.avail_out == size) {
      ASSIGN_OR_RETURN(const bool more, input_.Fill());
      if (!more) {
        if (in_member_) return EndsEarly(path_);
        return 0;
      }
      if (!in_member_) inflateReset(&stream_);
      stream_.next_in = reinterpret_cast<Bytef*>(input_.data());
      stream_.avail_in = static_cast<uInt>(input_.size());
      const int result = inflate(&stream_, Z_NO_FLUSH);
      if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) {
        return absl::InvalidArgumentError(absl::StrCat(
            path_,
            ": expected gzip's format: ", stream_.msg == nullptr ? "damaged data" : stream_.msg));
      }
      input_.Consume(input_.size() - stream_.avail_in);
      in_member_ = result != Z_STREAM_END;
    }
    return size - stream_.avail_out;
  }

 private:
  Input input_;
  const std::string path_;
  z_stream stream_ = {};
  bool in_member_ = false;
};

class ZstdSource : public io::ByteSource {
 public:
  ZstdSource(std::unique_ptr<io::ByteSource> source, std::string path)
      : input_(std::move(source)), path_(std::move(path)), stream_(ZSTD_createDStream()) {}
  ~ZstdSource() override { ZSTD_freeDStream(stream_); }

  absl::Status Begin() const {
    if (stream_ != nullptr) return absl::OkStatus();
    return absl::ResourceExhaustedError(absl::StrCat(path_, ": no memory to decompress"));
  }

  absl::StatusOr<size_t> Read(char* buffer, size_t size) override {
    ZSTD_outBuffer out = {buffer, size, 0};
    while (out.pos == 0) {
      ASSIGN_OR_RETURN(const bool more, input_.Fill());
      if (!more && !in_frame_) return 0;
      // Without input it still writes what it holds.
      ZSTD_inBuffer in = {input_.data(), more ? input_.size() : 0, 0};
      const size_t result = ZSTD_decompressStream(stream_, &out, &in);
      if (ZSTD_isError(result)) {
        return absl::InvalidArgumentError(
            absl::StrCat(path_, ": expected zstd's format: ", ZSTD_getErrorName(result)));
      }
      input_.Consume(in.pos);
      in_frame_ = result != 0;
      if (!more && in_frame_ && out.pos == 0) return EndsEarly(path_);
    }
    return out.pos;
  }

 private:
  Input input_;
  const std::string path_;
  ZSTD_DStream* const stream_;
  bool in_frame_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<io::ByteSource>> OpenGzip(std::unique_ptr<io::ByteSource> compressed,
                                                         std::string path) {
  auto source = std::make_unique<GzipSource>(std::move(compressed), std::move(path));
  RETURN_IF_ERROR(source->Begin());
  return source;
}

absl::StatusOr<std::unique_ptr<io::ByteSource>> OpenZstd(std::unique_ptr<io::ByteSource> compressed,
                                                         std::string path) {
  auto source = std::make_unique<ZstdSource>(std::move(compressed), std::move(path));
  RETURN_IF_ERROR(source->Begin());
  return source;
}

}  // namespace tandem::dataset
