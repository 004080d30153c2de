#include "common/rpc/status_conversion.h"

#include <google/protobuf/any.pb.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/text/printable.h"
#include "tandem/common/v1/error.pb.h"

namespace tandem::rpc {
namespace {

using google::protobuf::Any;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

constexpr absl::string_view kTypeUrlPrefix = "type.googleapis.com/";

// google.rpc.Status: int32 code = 1; string message = 2; repeated Any details = 3. Its generated
// header is not among gRPC's installed ones, and three fields do not need it.
constexpr int kCodeField = 1;
constexpr int kMessageField = 2;
constexpr int kDetailsField = 3;

// A message is sent percent-encoded in grpc-message and, beside details, once more in
// grpc-status-details-bin, in base64: 1500 + (1500 + 3000) * 4/3 stays below 8 KiB.
constexpr size_t kMaxMessageBytesAlone = 6000;
constexpr size_t kMaxMessageBytesWithDetails = 1500;
constexpr size_t kMaxDetailsBytes = 3000;

size_t PercentEncodedSize(char c) { return c >= 0x20 && c <= 0x7e && c != '%' ? 1 : 3; }

// Cuts between UTF-8 characters, so that clients in other languages can decode the rest.
std::string CutMessage(absl::string_view message, size_t max_bytes) {
  constexpr absl::string_view kCut = "... (cut)";
  size_t size = 0;
  for (const char c : message) size += PercentEncodedSize(c);
  if (size <= max_bytes) return std::string(message);
  size = kCut.size();
  size_t end = 0;
  while (size + PercentEncodedSize(message[end]) <= max_bytes) {
    size += PercentEncodedSize(message[end++]);
  }
  while (end > 0 && (static_cast<unsigned char>(message[end]) & 0xC0) == 0x80) --end;
  return absl::StrCat(message.substr(0, end), kCut);
}

// Halves the longest list until the message fits.
bool ShrinkUnloadedParams(size_t max_bytes, std::string* value) {
  common::v1::UnloadedParams params;
  if (!params.ParseFromString(*value)) return false;
  while (params.ByteSizeLong() > max_bytes) {
    const int missing = params.missing_size();
    const int unexpected = params.unexpected_size();
    const int mismatched = params.mismatched_size();
    const int longest = std::max({missing, unexpected, mismatched});
    if (longest == 0) return false;
    if (longest == missing) {
      params.mutable_missing()->DeleteSubrange(missing / 2, missing - missing / 2);
    } else if (longest == unexpected) {
      params.mutable_unexpected()->DeleteSubrange(unexpected / 2, unexpected - unexpected / 2);
    } else {
      params.mutable_mismatched()->DeleteSubrange(mismatched / 2, mismatched - mismatched / 2);
    }
  }
  return params.SerializeToString(value);
}

std::vector<Any> DetailsThatFit(const absl::Status& status) {
  std::vector<Any> details;
  status.ForEachPayload([&details](absl::string_view url, const absl::Cord& payload) {
    Any any;
    any.set_type_url(std::string(url));
    any.set_value(std::string(payload));
    details.push_back(std::move(any));
  });
  // Small ones first: ErrorInfo and BadField are what programs act on.
  std::sort(details.begin(), details.end(),
            [](const Any& a, const Any& b) { return a.value().size() < b.value().size(); });
  std::vector<Any> fitting;
  size_t used = 0;
  for (Any& any : details) {
    constexpr size_t kAnyOverhead = 16;
    const size_t overhead = any.type_url().size() + kAnyOverhead;
    if (used + overhead >= kMaxDetailsBytes) continue;
    const size_t room = kMaxDetailsBytes - used - overhead;
    if (any.value().size() > room &&
        !(absl::EndsWith(any.type_url(), "/tandem.common.v1.UnloadedParams") &&
          ShrinkUnloadedParams(room, any.mutable_value()))) {
      continue;
    }
    used += overhead + any.value().size();
    fitting.push_back(std::move(any));
  }
  return fitting;
}

std::string EncodeRpcStatus(int code, const std::string& message, const std::vector<Any>& details) {
  std::string out;
  google::protobuf::io::StringOutputStream stream(&out);
  CodedOutputStream coded(&stream);
  WireFormatLite::WriteInt32(kCodeField, code, &coded);
  WireFormatLite::WriteBytes(kMessageField, message, &coded);
  for (const Any& any : details) {
    WireFormatLite::WriteBytes(kDetailsField, any.SerializeAsString(), &coded);
  }
  coded.Trim();
  return out;
}

// Any bytes from a peer yield a list; skips unknown fields and ignores a malformed rest.
std::vector<Any> DecodeDetails(const std::string& bytes) {
  std::vector<Any> details;
  CodedInputStream coded(reinterpret_cast<const uint8_t*>(bytes.data()),
                         static_cast<int>(bytes.size()));
  while (const uint32_t tag = coded.ReadTag()) {
    const uint32_t details_tag =
        WireFormatLite::MakeTag(kDetailsField, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
    if (tag != details_tag) {
      if (!WireFormatLite::SkipField(&coded, tag)) break;
      continue;
    }
    std::string value;
    Any any;
    if (!WireFormatLite::ReadBytes(&coded, &value)) break;
    if (any.ParseFromString(value)) details.push_back(std::move(any));
  }
  return details;
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const auto code = static_cast<grpc::StatusCode>(status.code());
  const std::vector<Any> details = DetailsThatFit(status);
  if (details.empty()) {
    return grpc::Status(code, CutMessage(status.message(), kMaxMessageBytesAlone));
  }
  // Both places carry the same text: clients check that they agree.
  const std::string message = CutMessage(status.message(), kMaxMessageBytesWithDetails);
  return grpc::Status(code, message,
                      EncodeRpcStatus(static_cast<int>(status.code()), message, details));
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const int code = status.error_code();
  const bool known = code > 0 && code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  absl::Status out(known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
                   text::Printable(status.error_message()));
  for (const Any& any : DecodeDetails(status.error_details())) {
    out.SetPayload(any.type_url(), absl::Cord(any.value()));
  }
  return out;
}

std::string DetailTypeUrl(const google::protobuf::Descriptor& descriptor) {
  return absl::StrCat(kTypeUrlPrefix, descriptor.full_name());
}

void AttachDetail(absl::Status& status, const google::protobuf::Message& detail) {
  status.SetPayload(DetailTypeUrl(*detail.GetDescriptor()), absl::Cord(detail.SerializeAsString()));
}

absl::Status InvalidField(absl::string_view field, absl::string_view description) {
  absl::Status status = absl::InvalidArgumentError(absl::StrCat(field, ": ", description));
  common::v1::BadField detail;
  detail.set_field(std::string(field));
  detail.set_description(std::string(description));
  AttachDetail(status, detail);
  return status;
}

absl::Status WithReason(
    absl::Status status, absl::string_view reason,
    std::initializer_list<std::pair<absl::string_view, absl::string_view>> metadata) {
  common::v1::ErrorInfo info;
  info.set_reason(std::string(reason));
  for (const auto& [key, value] : metadata) {
    (*info.mutable_metadata())[std::string(key)] = std::string(value);
  }
  AttachDetail(status, info);
  return status;
}

}  // namespace tandem::rpc
