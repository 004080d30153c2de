#include "tools/tandem/driver/event_file.h"

#include <fcntl.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <functional>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/io/file_util.h"
#include "common/status/status_macros.h"

namespace tandem::driver {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedOutputStream;

// Fields of tensorboard.Event, .Summary and .Summary.Value.
constexpr int kWallTime = 1;     // double, seconds since the epoch
constexpr int kStep = 2;         // int64
constexpr int kFileVersion = 3;  // string, of the first event alone
constexpr int kSummary = 5;
constexpr int kValue = 1;
constexpr int kTag = 1;          // string
constexpr int kSimpleValue = 2;  // float

std::string Encode(const std::function<void(CodedOutputStream*)>& write) {
  std::string out;
  {
    google::protobuf::io::StringOutputStream stream(&out);
    CodedOutputStream coded(&stream);
    write(&coded);
  }
  return out;
}

std::string Header(absl::Time time) {
  return Encode([&](CodedOutputStream* out) {
    WireFormatLite::WriteDouble(kWallTime, absl::ToDoubleSeconds(time - absl::UnixEpoch()), out);
    WireFormatLite::WriteString(kFileVersion, "brain.Event:2", out);
  });
}

std::string Event(absl::Time time, int64_t step, const std::map<std::string, double>& values) {
  const std::string summary = Encode([&](CodedOutputStream* out) {
    for (const auto& [name, value] : values) {
      if (!std::isfinite(value)) continue;
      WireFormatLite::WriteBytes(kValue, Encode([&](CodedOutputStream* of_value) {
                                   WireFormatLite::WriteString(kTag, name, of_value);
                                   WireFormatLite::WriteFloat(kSimpleValue,
                                                              static_cast<float>(value), of_value);
                                 }),
                                 out);
    }
  });
  return Encode([&](CodedOutputStream* out) {
    WireFormatLite::WriteDouble(kWallTime, absl::ToDoubleSeconds(time - absl::UnixEpoch()), out);
    WireFormatLite::WriteInt64(kStep, step, out);
    WireFormatLite::WriteBytes(kSummary, summary, out);
  });
}

template <typename T>
std::string LittleEndian(T value) {
  std::string out;
  for (size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
  return out;
}

// TFRecord stores the CRC rotated and offset, because the CRC of data that holds CRCs is weak.
std::string MaskedChecksum(absl::string_view bytes) {
  const uint32_t crc = Crc32c(bytes);
  return LittleEndian(((crc >> 15) | (crc << 17)) + 0xa282ead8u);
}

}  // namespace

uint32_t Crc32c(absl::string_view bytes) {
  static const std::array<uint32_t, 256> kTable = [] {
    constexpr uint32_t kPolynomial = 0x82f63b78;  // Castagnoli's, bits reversed
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < table.size(); ++i) {
      uint32_t crc = i;
      for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
      table[i] = crc;
    }
    return table;
  }();
  uint32_t crc = 0xffffffff;
  for (const char c : bytes) crc = kTable[(crc ^ static_cast<uint8_t>(c)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

absl::StatusOr<EventFile> EventFile::Create(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return absl::PermissionDeniedError(
        absl::StrCat("cannot create the folder ", folder, ": ", error.message()));
  }
  char host[256] = "localhost";
  gethostname(host, sizeof(host) - 1);
  const absl::Time now = absl::Now();
  std::string path = absl::StrCat(folder, "/events.out.tfevents.", absl::ToUnixSeconds(now), ".",
                                  host, ".", getpid(), ".", absl::ToUnixNanos(now) % 1000000000);
  ASSIGN_OR_RETURN(host::FileDescriptor file,
                   io::OpenFile(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND, 0666, "write"));
  EventFile out(std::move(path), std::move(file));
  RETURN_IF_ERROR(out.WriteRecord(Header(now)));
  return out;
}

absl::Status EventFile::Append(absl::Time time, int64_t step,
                               const std::map<std::string, double>& values) {
  return WriteRecord(Event(time, step, values));
}

absl::Status EventFile::WriteRecord(absl::string_view event) {
  const std::string length = LittleEndian(uint64_t{event.size()});
  return io::WriteAll(file_.get(),
                      absl::StrCat(length, MaskedChecksum(length), event, MaskedChecksum(event)),
                      path_);
}

}  // namespace tandem::driver
