// The client's side of a call: a channel with the settings that our servers expect, a context that
// always has a deadline, and health checks.
//
//   auto channel = rpc::MakeChannel("127.0.0.1:5000");
//   RETURN_IF_ERROR(rpc::WaitUntilHealthy(channel, "tandem.rollout.v1.RolloutService", timeout));
//   auto context = rpc::MakeContext(absl::Seconds(30));
//   absl::Status status = rpc::FromGrpcStatus(stub->GetServerInfo(context.get(), request, &info));
//
// Thread-safe; channels may be shared.
#ifndef TANDEM_COMMON_RPC_CHANNEL_H_
#define TANDEM_COMMON_RPC_CHANNEL_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/transport_security.h"

namespace tandem::rpc {

// Largest message that either side sends or receives.
inline constexpr int64_t kDefaultMaxMessageBytes = 16 << 20;

// Both sides ping an idle connection, to detect a peer that vanished without closing it. A server
// refuses peers that ping more often than kMinPingInterval.
inline constexpr absl::Duration kPingInterval = absl::Seconds(30);
inline constexpr absl::Duration kPingTimeout = absl::Seconds(30);
inline constexpr absl::Duration kMinPingInterval = absl::Seconds(10);

// Metadata of every response: the server's clock, in milliseconds since the epoch.
inline constexpr char kServerTime[] = "tandem-time-ms";

struct ChannelOptions {
  int64_t max_message_bytes = kDefaultMaxMessageBytes;
  // Retries calls that failed with UNAVAILABLE before a response began. Every call of our services
  // is safe to retry (it carries a request_id); turn this off to see a failure at once.
  bool retry = true;
  // Uses plaintext and no token even if the process has TLS: for health ports.
  bool plaintext = false;
  // This client's credentials; null for those of the process.
  std::shared_ptr<const TransportSecurity> security;
};

// Returns at once; the first call connects. Ignores the environment's HTTP proxies: services talk
// to each other directly. If the process's security settings forbid the address
// (TransportSecurity::CheckTarget), every call fails with the reason.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const ChannelOptions& options = {});

struct ContextOptions {
  // Waits, up to the deadline, for a server that is not reachable yet, instead of failing.
  bool wait_for_ready = false;
};

// Makes a context for one call, which fails with DEADLINE_EXCEEDED after `timeout`.
std::unique_ptr<grpc::ClientContext> MakeContext(absl::Duration timeout,
                                                 const ContextOptions& options = {});

// Asks grpc.health.v1 once whether `service_name` ("" for the process) is SERVING. UNAVAILABLE if
// nothing responds, NOT_FOUND if the server does not know the name.
absl::StatusOr<bool> IsServing(const std::shared_ptr<grpc::Channel>& channel,
                               const std::string& service_name, absl::Duration timeout);

// How far the server's clock is ahead of ours, accurate to half the round trip, and the round trip.
// UNAVAILABLE if nothing responds; UNIMPLEMENTED if the server is not one of ours.
struct ClockDifference {
  absl::Duration ahead;
  absl::Duration round_trip;
};
absl::StatusOr<ClockDifference> CompareClocks(const std::shared_ptr<grpc::Channel>& channel,
                                              absl::Duration timeout);

// Polls until the status is SERVING. DEADLINE_EXCEEDED, with the last response, after `timeout`;
// UNIMPLEMENTED, UNAUTHENTICATED and PERMISSION_DENIED at once, because waiting does not help.
absl::Status WaitUntilHealthy(const std::shared_ptr<grpc::Channel>& channel,
                              const std::string& service_name, absl::Duration timeout);

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_CHANNEL_H_
