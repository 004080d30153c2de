#include "common/rpc/channel.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/channel_arguments.h>
#include <grpcpp/support/slice.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/rpc/grpc_log.h"
#include "common/rpc/no_compression.h"
#include "common/rpc/refusing_interceptor.h"
#include "common/rpc/status_conversion.h"
#include "common/rpc/token_interceptor.h"
#include "common/rpc/trace_interceptor.h"
#include "common/status/status_macros.h"

namespace tandem::rpc {
namespace {

using google::protobuf::internal::WireFormatLite;

// An empty name matches every method.
constexpr char kServiceConfig[] = R"({
  "methodConfig": [{
    "name": [{}],
    "retryPolicy": {
      "maxAttempts": 4,
      "initialBackoff": "0.1s",
      "maxBackoff": "2s",
      "backoffMultiplier": 2,
      "retryableStatusCodes": ["UNAVAILABLE"]
    }
  }]
})";

// Room for error details of servers that send more than our own do.
constexpr int kMaxMetadataBytes = 64 << 10;
constexpr absl::Duration kFirstReconnect = absl::Milliseconds(100);
constexpr absl::Duration kLongestReconnect = absl::Seconds(2);

constexpr char kHealthCheckMethod[] = "/grpc.health.v1.Health/Check";
constexpr int kServing = 1;  // grpc.health.v1.HealthCheckResponse.SERVING
constexpr absl::Duration kFirstPoll = absl::Milliseconds(10);
constexpr absl::Duration kLongestPoll = absl::Milliseconds(200);

int Milliseconds(absl::Duration duration) {
  return static_cast<int>(absl::ToInt64Milliseconds(duration));
}

// HealthCheckRequest: string service = 1.
grpc::ByteBuffer EncodeHealthRequest(const std::string& service_name) {
  std::string bytes;
  if (!service_name.empty()) {
    bytes +=
        static_cast<char>(WireFormatLite::MakeTag(1, WireFormatLite::WIRETYPE_LENGTH_DELIMITED));
    uint8_t size[10];
    const uint8_t* end = google::protobuf::io::CodedOutputStream::WriteVarint32ToArray(
        static_cast<uint32_t>(service_name.size()), size);
    bytes.append(reinterpret_cast<const char*>(size), end - size);
    bytes += service_name;
  }
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

// HealthCheckResponse: enum status = 1.
int DecodeHealthStatus(const grpc::ByteBuffer& response) {
  std::vector<grpc::Slice> slices;
  if (!response.Dump(&slices).ok()) return 0;
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  google::protobuf::io::CodedInputStream coded(reinterpret_cast<const uint8_t*>(bytes.data()),
                                               static_cast<int>(bytes.size()));
  uint32_t status = 0;
  while (const uint32_t tag = coded.ReadTag()) {
    const bool read = tag == WireFormatLite::MakeTag(1, WireFormatLite::WIRETYPE_VARINT)
                          ? coded.ReadVarint32(&status)
                          : WireFormatLite::SkipField(&coded, tag);
    if (!read) return 0;
  }
  return static_cast<int>(status);
}

absl::StatusOr<grpc::ByteBuffer> AskHealth(const std::shared_ptr<grpc::Channel>& channel,
                                           const std::string& service_name,
                                           grpc::ClientContext& context) {
  grpc::GenericStub stub(channel);
  const grpc::ByteBuffer request = EncodeHealthRequest(service_name);
  grpc::ByteBuffer response;
  grpc::Status status;
  absl::Notification done;
  stub.UnaryCall(&context, kHealthCheckMethod, grpc::StubOptions(), &request, &response,
                 [&status, &done](grpc::Status result) {
                   status = std::move(result);
                   done.Notify();
                 });
  done.WaitForNotification();  // the context's deadline bounds it
  if (!status.ok()) return FromGrpcStatus(status);
  return response;
}

absl::Duration Remaining(absl::Time deadline) { return deadline - absl::Now(); }

}  // namespace

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const ChannelOptions& options) {
  RouteGrpcLog();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
  arguments.SetMaxSendMessageSize(static_cast<int>(options.max_message_bytes));
  arguments.SetInt(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  RefuseCompression([&arguments](const char* name, int value) { arguments.SetInt(name, value); });
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(kPingInterval));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Milliseconds(kPingTimeout));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // no limit; the interval is one
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, Milliseconds(kFirstReconnect));
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, Milliseconds(kLongestReconnect));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, Milliseconds(kLongestReconnect));
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, options.retry ? 1 : 0);
  if (options.retry) arguments.SetServiceConfigJSON(kServiceConfig);
  const auto security =
      options.security == nullptr ? TransportSecurity::OfProcess() : options.security;
  auto interceptors = TraceInterceptors();
  if (options.plaintext) {
    return grpc::experimental::CreateCustomChannelWithInterceptors(
        address, grpc::InsecureChannelCredentials(), arguments, std::move(interceptors));
  }
  if (const absl::Status allowed = security->CheckTarget(address); !allowed.ok()) {
    interceptors.push_back(RefusingInterceptor(allowed));
  } else if (!security->has_tls()) {
    interceptors.push_back(TokenInterceptor(security));
  }
  return grpc::experimental::CreateCustomChannelWithInterceptors(
      address, security->ForChannel(), arguments, std::move(interceptors));
}

std::unique_ptr<grpc::ClientContext> MakeContext(absl::Duration timeout,
                                                 const ContextOptions& options) {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  context->set_wait_for_ready(options.wait_for_ready);
  return context;
}

absl::StatusOr<bool> IsServing(const std::shared_ptr<grpc::Channel>& channel,
                               const std::string& service_name, absl::Duration timeout) {
  const auto context = MakeContext(timeout);
  ASSIGN_OR_RETURN(const grpc::ByteBuffer response, AskHealth(channel, service_name, *context));
  return DecodeHealthStatus(response) == kServing;
}

absl::StatusOr<ClockDifference> CompareClocks(const std::shared_ptr<grpc::Channel>& channel,
                                              absl::Duration timeout) {
  const auto context = MakeContext(timeout);
  const absl::Time start = absl::Now();
  RETURN_IF_ERROR(AskHealth(channel, "", *context).status());
  const absl::Duration round_trip = absl::Now() - start;
  const auto& metadata = context->GetServerTrailingMetadata();
  const auto found = metadata.find(kServerTime);
  int64_t milliseconds = 0;
  if (found == metadata.end() ||
      !absl::SimpleAtoi(absl::string_view(found->second.data(), found->second.size()),
                        &milliseconds)) {
    return absl::UnimplementedError(
        "the server does not report its time: it is not a Tandem service");
  }
  return ClockDifference{absl::FromUnixMillis(milliseconds) - (start + round_trip / 2), round_trip};
}

absl::Status WaitUntilHealthy(const std::shared_ptr<grpc::Channel>& channel,
                              const std::string& service_name, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  absl::Duration poll = kFirstPoll;
  std::string last = "none";
  while (Remaining(deadline) > absl::ZeroDuration()) {
    // One lost response must not use up the whole wait.
    const absl::Duration attempt = std::min(Remaining(deadline), absl::Seconds(5));
    const absl::StatusOr<bool> serving = IsServing(channel, service_name, attempt);
    if (serving.ok() && *serving) return absl::OkStatus();
    if (serving.ok()) {
      last = "NOT_SERVING";
    } else if (!absl::IsDeadlineExceeded(serving.status()) || last == "none") {
      last = serving.status().ToString();  // a poll that the end of the wait cut short says nothing
    }
    // Errors that waiting does not change.
    if (absl::IsUnimplemented(serving.status()) || absl::IsUnauthenticated(serving.status()) ||
        absl::IsPermissionDenied(serving.status())) {
      return serving.status();
    }
    absl::SleepFor(std::clamp(Remaining(deadline), absl::ZeroDuration(), poll));
    poll = std::min(poll * 2, kLongestPoll);
  }
  return absl::DeadlineExceededError(
      absl::StrFormat("%s was not healthy within %s; last response: %s",
                      service_name.empty() ? "the server" : absl::StrCat("service ", service_name),
                      absl::FormatDuration(timeout), last));
}

}  // namespace tandem::rpc
